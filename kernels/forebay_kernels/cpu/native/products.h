// What the products need of each set of instructions; see isa/.
#pragma once

#include <cstdint>

#include "linear.h"
#include "matrix.h"

namespace forebay {

// Rows rounded to eight bits, unit by unit of Matrix::unit_inputs.
//
// x is about codes * scales, in int8 within 127. offsets are what a unit's zeros come to:
//   middle    int32 a unit: -2 ** (bits - 1) * the sum of its codes
//   integers  int32 a unit: -the sum of its codes
//   mins      float a group: the sum of its codes, as numbers, times min_factor
struct RoundedRows {
    int8_t* codes;       // [rows][code_stride], zeros past K
    float* scales;       // [rows][unit_stride], times scale_factor
    void* offsets;       // [rows][unit_stride]
    int32_t code_stride;
    int32_t unit_stride;
};

// Where a product's sums go: of rows from first_row on.
struct Destination {
    const float* bias;
    float* out;
    int64_t stride;
    bool adds;
};

// A part of a product: some rows by some tiles.
struct Part {
    int first_row, end_row;
    int first_tile, end_tile;
};

struct Products {
    // One row of x [num_inputs] into row `row` of rounded.
    void (*round_codes)(const Matrix&, const float* x, const RoundedRows& rounded, int row);
    // One row of x into bfloat16 [K rounded up to 2].
    void (*round_bfloat16)(const Matrix&, const float* x, uint16_t* rounded);
    // scratch: codes_scratch_bytes
    void (*multiply_codes)(const Matrix&, const RoundedRows&, const Part&, const Destination&,
                           uint8_t* scratch);
    // x [rows][stride] in stored order; scratch: dense_scratch_bytes
    void (*multiply_floats)(const Matrix&, const float* x, int64_t stride, const Part&,
                            const Destination&, uint8_t* scratch);
    // null where there are no dot products of bfloat16
    void (*multiply_bfloat16)(const Matrix&, const uint16_t* x, int64_t stride, const Part&,
                              const Destination&);
    int64_t (*codes_scratch_bytes)(const Matrix&);
    int64_t (*floats_scratch_bytes)(const Matrix&, int num_rows);
    int tiles_at_once;  // a part's tiles are best a multiple of it
};

// Those of the instructions in use.
const Products& products();

}  // namespace forebay
