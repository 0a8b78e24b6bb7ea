// Scores and weighted sums of few rows, straight from the cache: what decoding does. Each number is
// summed in the same order as from scratch. What comes next is fetched meanwhile.
#pragma once

#include "attention_work.h"
#include "key_stream.h"
#include "key_tiles.h"
#include "lanes.h"
#include "stored_lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

template <Number number, int rows>
void score_rows(const Work& work, const TilePlaces& places, KeyStream& stream) {
    for (int first = places.begin / 16 * 16; first < places.end; first += 16) {
        const KeyGroup group(places, work.kv_head, first);
        stream.use(group.end - group.begin);
        Floats sums[rows];
        for (int row = 0; row < rows; ++row) sums[row] = zero_floats();
        for (int i = 0; i < work.head_dim; i += 16) {
            Floats keys[16];
            load_turned<number>(group, work.head_dim, i, keys);
            for (int j = 0; j < 16; ++j) {
                for (int row = 0; row < rows; ++row) {
                    const Floats query = spread(work.queries[row * work.stride + i + j]);
                    sums[row] = fma(query, keys[j], sums[row]);
                }
            }
        }
        for (int row = 0; row < rows; ++row) {
            store(work.scores + row * scores_stride + first, sums[row]);
        }
    }
}

template <Number number, int rows, int vectors>
FB_INLINE void sum_columns(const Work& work, const TilePlaces& places, KeyStream& stream,
                           int column, float* parts) {
    Floats sums[rows][vectors];
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) sums[row][i] = zero_floats();
    }
    for (int key = places.begin; key < places.end; ++key) {
        const void* value = places.value(key, work.kv_head);
        if (column == 0 && key % 4 == 0) stream.use(4);
        Floats right[vectors];
        for (int i = 0; i < vectors; ++i) {
            right[i] = load_stored<number>(value, work.head_dim, column + 16 * i);
        }
        for (int row = 0; row < rows; ++row) {
            const Floats left = spread(work.scores[row * scores_stride + key]);
            for (int i = 0; i < vectors; ++i) sums[row][i] = fma(left, right[i], sums[row][i]);
        }
    }
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) {
            store(parts + row * work.total_floats() + column + 16 * i, sums[row][i]);
        }
    }
}

template <Number number, int rows>
void sum_values(const Work& work, const TilePlaces& places, KeyStream& stream, float* parts) {
#if defined(__AVX512F__)
    constexpr int vectors = rows <= 5 ? 4 : 2;
#elif defined(__AVX2__)
    constexpr int vectors = rows <= 3 ? 2 : 1;
#else
    constexpr int vectors = 1;
#endif
    int column = 0;
    for (; column + 16 * vectors <= work.head_dim; column += 16 * vectors) {
        sum_columns<number, rows, vectors>(work, places, stream, column, parts);
    }
    for (; column < work.head_dim; column += 16) {
        sum_columns<number, rows, 1>(work, places, stream, column, parts);
    }
}

// The two for any number of rows up to few_rows, and any kind of cache.
struct FewRows {
    void (*score)(const Work&, const TilePlaces&, KeyStream&);
    void (*sum)(const Work&, const TilePlaces&, KeyStream&, float* parts);
};

template <Number number>
FB_INLINE FewRows few_rows_of(int num_rows) {
    static_assert(few_rows == 8);
    switch (num_rows) {
        case 1: return {score_rows<number, 1>, sum_values<number, 1>};
        case 2: return {score_rows<number, 2>, sum_values<number, 2>};
        case 3: return {score_rows<number, 3>, sum_values<number, 3>};
        case 4: return {score_rows<number, 4>, sum_values<number, 4>};
        case 5: return {score_rows<number, 5>, sum_values<number, 5>};
        case 6: return {score_rows<number, 6>, sum_values<number, 6>};
        case 7: return {score_rows<number, 7>, sum_values<number, 7>};
        default: return {score_rows<number, 8>, sum_values<number, 8>};
    }
}

FB_INLINE FewRows few_rows_of(const Work& work) {
    switch (work.call.cache.number) {
        case Number::float32: return few_rows_of<Number::float32>(work.num_rows);
        case Number::bfloat16: return few_rows_of<Number::bfloat16>(work.num_rows);
        case Number::float16: return few_rows_of<Number::float16>(work.num_rows);
        case Number::fp8: return few_rows_of<Number::fp8>(work.num_rows);
        case Number::int8: return few_rows_of<Number::int8>(work.num_rows);
        case Number::int4: return few_rows_of<Number::int4>(work.num_rows);
    }
    return {};
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
