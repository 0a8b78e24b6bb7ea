// The product of rows with a weight matrix, in whatever format that is kept.
//
// Each output is one sum in one order over the inputs, whatever the number of rows, the number of
// threads, and how the work was split: a row gives the same bits in any company.
#pragma once

#include <cstdint>

#include "matrix.h"
#include "pool.h"
#include "scratch.h"

namespace forebay {

// Mirrored by native_structs.py, as LinearCall is.
enum class InputForm : int32_t {
    rounded,  // to what the processor is quickest with: eight bits for codes, bfloat16 for bfloat16
              // and for attention whose cache is not float32
    exact,    // float32, and weights become float32
};

// x [num_rows, num_inputs] and out [num_rows, N], both with strides in floats; bias [N] or null.
struct LinearCall {
    const float* x;
    int64_t x_stride;
    int32_t num_rows;
    const float* bias;
    float* out;
    int64_t out_stride;
    bool adds;  // out += the product and bias, else out = them
    InputForm input_form;
};

void linear(const Matrix& matrix, const LinearCall& call, Pool& pool, Scratch& scratch);

// The weights of one output: out [num_inputs]. Of an input that is stored more than once, the sum.
void embedding_row(const Matrix& matrix, int row, float* out);

}  // namespace forebay
