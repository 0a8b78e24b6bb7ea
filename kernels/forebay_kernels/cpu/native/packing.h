// Weights from rows, one after the other, to the tiles that products read; see matrix.h.
#pragma once

#include <cstdint>

#include "pool.h"

namespace forebay {

// codes [num_outputs][row_stride] uint8, of which num_inputs are used; out: records, of tiles that
// are filled up with zeros.
struct CodeRows {
    const uint8_t* codes;
    int64_t row_stride;
    int32_t num_outputs;
    int32_t num_inputs;
    int32_t bits;
};
void pack_codes(const CodeRows& rows, uint8_t* out, Pool& pool);

// weights [num_outputs][row_stride] of 4 (float32) or 2 bytes (bfloat16) each.
struct DenseRows {
    const uint8_t* weights;
    int64_t row_stride;
    int32_t num_outputs;
    int32_t num_inputs;
    int32_t element_bytes;
};
void pack_dense(const DenseRows& rows, uint8_t* out, Pool& pool);

}  // namespace forebay
