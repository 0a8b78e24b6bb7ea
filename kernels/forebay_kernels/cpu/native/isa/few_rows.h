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

// queries [rows][stride] from the word that keys begin with.
template <class Form, int rows, int num_words>
FB_INLINE void add_scores(const float* queries, int stride, const Floats* keys, Floats* sums) {
    for (int j = 0; j < num_words; ++j) {
        for (int row = 0; row < rows; ++row) {
            const auto query = Form::spread_word(queries + row * stride + j);
            sums[row] = Form::add_products(sums[row], query, Form::as_words(keys[j]));
        }
    }
}

template <class Form, Number number, int rows>
void score_rows(const Work& work, const TilePlaces& places, KeyStream& stream) {
    for (int first = places.begin / 16 * 16; first < places.end; first += 16) {
        const KeyGroup group(places, work.kv_head, first);
        stream.use(group.end - group.begin);
        Floats sums[rows];
        for (int row = 0; row < rows; ++row) sums[row] = zero_floats();
        for (int i = 0; i < work.head_dim; i += 16 * Form::depth) {
            Floats keys[16];
            load_turned<Form, number>(group, work.head_dim, i, keys);
            const float* queries = work.queries + i / Form::depth;
            if (words_from<Form>(work.head_dim, i) == 16) {
                add_scores<Form, rows, 16>(queries, work.stride, keys, sums);
            } else {
                add_scores<Form, rows, 8>(queries, work.stride, keys, sums);
            }
        }
        for (int row = 0; row < rows; ++row) {
            store(work.scores + row * scores_stride + first, sums[row]);
        }
    }
}

template <class Form, Number number, int rows, int vectors>
FB_INLINE void sum_columns(const Work& work, const TilePlaces& places, KeyStream& stream,
                           int column, float* parts) {
    Floats sums[rows][vectors];
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) sums[row][i] = zero_floats();
    }
    for (int word = places.begin / Form::depth; word * Form::depth < places.end; ++word) {
        const int key = word * Form::depth;
        if (column == 0 && key % 4 == 0) stream.use(4);
        typename Form::Words right[vectors];
        for (int i = 0; i < vectors; ++i) {
            right[i] = Loading<Form, number>::values(places, work.kv_head, key, work.head_dim,
                                                     column + 16 * i);
        }
        for (int row = 0; row < rows; ++row) {
            const auto left = Form::spread_word(work.scores + row * scores_stride + word);
            for (int i = 0; i < vectors; ++i) {
                sums[row][i] = Form::add_products(sums[row][i], left, right[i]);
            }
        }
    }
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) {
            store(parts + row * work.total_floats() + column + 16 * i, sums[row][i]);
        }
    }
}

template <class Form, Number number, int rows>
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
        sum_columns<Form, number, rows, vectors>(work, places, stream, column, parts);
    }
    for (; column < work.head_dim; column += 16) {
        sum_columns<Form, number, rows, 1>(work, places, stream, column, parts);
    }
}

// The two for any number of rows up to few_rows, and any kind of cache.
struct FewRows {
    void (*score)(const Work&, const TilePlaces&, KeyStream&);
    void (*sum)(const Work&, const TilePlaces&, KeyStream&, float* parts);
};

template <class Form, Number number>
FB_INLINE FewRows few_rows_of(int num_rows) {
    static_assert(few_rows == 8);
    switch (num_rows) {
        case 1: return {score_rows<Form, number, 1>, sum_values<Form, number, 1>};
        case 2: return {score_rows<Form, number, 2>, sum_values<Form, number, 2>};
        case 3: return {score_rows<Form, number, 3>, sum_values<Form, number, 3>};
        case 4: return {score_rows<Form, number, 4>, sum_values<Form, number, 4>};
        case 5: return {score_rows<Form, number, 5>, sum_values<Form, number, 5>};
        case 6: return {score_rows<Form, number, 6>, sum_values<Form, number, 6>};
        case 7: return {score_rows<Form, number, 7>, sum_values<Form, number, 7>};
        default: return {score_rows<Form, number, 8>, sum_values<Form, number, 8>};
    }
}

template <class Form>
FB_INLINE FewRows few_rows_of(const Work& work) {
    switch (work.call.cache.number) {
        case Number::float32: return few_rows_of<Form, Number::float32>(work.num_rows);
        case Number::bfloat16: return few_rows_of<Form, Number::bfloat16>(work.num_rows);
        case Number::float16: return few_rows_of<Form, Number::float16>(work.num_rows);
        case Number::fp8: return few_rows_of<Form, Number::fp8>(work.num_rows);
        case Number::int8: return few_rows_of<Form, Number::int8>(work.num_rows);
        case Number::int4: return few_rows_of<Form, Number::int4>(work.num_rows);
    }
    return {};
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
