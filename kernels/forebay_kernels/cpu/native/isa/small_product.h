// A product of few rows, each of its numbers one sum in order: how many rows and vectors are taken
// at a time changes no result.
#pragma once

#include <cstdint>

#include "attention_form.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// What fits into the registers: accumulators of rows by vectors, a vector and a number.
#if defined(__AVX512F__)
constexpr int block_rows = 6, block_vectors = 4;
#elif defined(__AVX2__)
constexpr int block_rows = 3, block_vectors = 2;
#else
constexpr int block_rows = 2, block_vectors = 1;
#endif

// A product of few rows: out [rows][vectors * 16] = x [rows][begin, end) @ y [begin, end)[…], of
// words, in which all strides but the last are.
struct SmallProduct {
    const float* x;
    int64_t x_stride;
    const float* y;
    int64_t y_stride;
    int begin, end;
    float* out;
    int64_t out_stride;
};

template <class Form, int rows, int vectors>
FB_INLINE void multiply(const SmallProduct& product, int column) {
    Floats sums[rows][vectors];
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) sums[row][i] = zero_floats();
    }
    const float* y = product.y + product.begin * product.y_stride + column;
    for (int k = product.begin; k < product.end; ++k, y += product.y_stride) {
        typename Form::Words right[vectors];
        for (int i = 0; i < vectors; ++i) right[i] = Form::load_words(y + 16 * i);
        for (int row = 0; row < rows; ++row) {
            const auto left = Form::spread_word(product.x + row * product.x_stride + k);
            for (int i = 0; i < vectors; ++i) {
                sums[row][i] = Form::add_products(sums[row][i], left, right[i]);
            }
        }
    }
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) {
            store(product.out + row * product.out_stride + column + 16 * i, sums[row][i]);
        }
    }
}

template <class Form, int rows>
void multiply_columns(const SmallProduct& product, int column, int end) {
    for (; column + 16 * block_vectors <= end; column += 16 * block_vectors) {
        multiply<Form, rows, block_vectors>(product, column);
    }
    for (; column < end; column += 16) multiply<Form, rows, 1>(product, column);
}

template <class Form>
void multiply_rows(const SmallProduct& product, int num_rows, int column, int end) {
    static_assert(block_rows <= 6);
    switch (num_rows) {
        case 1: return multiply_columns<Form, 1>(product, column, end);
        case 2: return multiply_columns<Form, 2>(product, column, end);
#if defined(__AVX2__)
        case 3: return multiply_columns<Form, 3>(product, column, end);
#endif
#if defined(__AVX512F__)
        case 4: return multiply_columns<Form, 4>(product, column, end);
        case 5: return multiply_columns<Form, 5>(product, column, end);
        case 6: return multiply_columns<Form, 6>(product, column, end);
#endif
        default: return;
    }
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
