// Scores and weighted sums of few rows, straight from the cache: what decoding does. Each number is
// summed in the same order as from scratch. The tile that comes next is fetched meanwhile.
#pragma once

#include "attention_work.h"
#include "key_tiles.h"
#include "lanes.h"
#include "stored_lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

FB_INLINE void fetch(const uint8_t* head, int64_t num_bytes) {
    for (int64_t i = 0; i < num_bytes; i += 64) __builtin_prefetch(head + i, 0, 2);
}

template <Number number, int rows>
void score_rows(const Work& work, const TilePlaces& places, const TilePlaces& next) {
    const int64_t head_bytes = work.call.cache.head_bytes();
    for (int first = places.begin / 16 * 16; first < places.end; first += 16) {
        const KeyGroup group(places, first);
        const int next_end = least(first + 16, next.end);
        for (int key = most(first, next.begin); key < next_end; ++key) {
            fetch(next.key(key), head_bytes);
        }
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
            store(work.scores + row * tile_keys + first, sums[row]);
        }
    }
    for (int key = most((places.end + 15) / 16 * 16, next.begin); key < next.end; ++key) {
        fetch(next.key(key), head_bytes);
    }
}

template <Number number, int rows, int vectors>
FB_INLINE void sum_columns(const Work& work, const TilePlaces& places, const TilePlaces& next,
                           int column, float* parts) {
    const int64_t head_bytes = work.call.cache.head_bytes();
    // Once a tile, beside the first columns.
    const int fetch_end = column == 0 ? next.end : 0;
    Floats sums[rows][vectors];
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) sums[row][i] = zero_floats();
    }
    for (int key = places.begin; key < places.end; ++key) {
        const void* value = places.value(key);
        if (key < fetch_end && key >= next.begin) fetch(next.value(key), head_bytes);
        Floats right[vectors];
        for (int i = 0; i < vectors; ++i) {
            right[i] = load_stored<number>(value, work.head_dim, column + 16 * i);
        }
        for (int row = 0; row < rows; ++row) {
            const Floats left = spread(work.scores[row * tile_keys + key]);
            for (int i = 0; i < vectors; ++i) sums[row][i] = fma(left, right[i], sums[row][i]);
        }
    }
    for (int key = most(places.end, next.begin); key < fetch_end; ++key) {
        fetch(next.value(key), head_bytes);
    }
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) {
            store(parts + row * work.total_floats() + column + 16 * i, sums[row][i]);
        }
    }
}

template <Number number, int rows>
void sum_values(const Work& work, const TilePlaces& places, const TilePlaces& next, float* parts) {
#if defined(__AVX512F__)
    constexpr int vectors = rows <= 5 ? 4 : 2;
#elif defined(__AVX2__)
    constexpr int vectors = rows <= 3 ? 2 : 1;
#else
    constexpr int vectors = 1;
#endif
    int column = 0;
    for (; column + 16 * vectors <= work.head_dim; column += 16 * vectors) {
        sum_columns<number, rows, vectors>(work, places, next, column, parts);
    }
    for (; column < work.head_dim; column += 16) {
        sum_columns<number, rows, 1>(work, places, next, column, parts);
    }
}

// The two for any number of rows up to few_rows, and any kind of cache.
struct FewRows {
    void (*score)(const Work&, const TilePlaces&, const TilePlaces& next);
    void (*sum)(const Work&, const TilePlaces&, const TilePlaces& next, float* parts);
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
