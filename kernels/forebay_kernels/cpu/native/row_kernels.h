// What each set of instructions does to one row, whatever other rows there are; see isa/.
#pragma once

#include <cstdint>

#include "instructions.h"

namespace forebay {

struct RowKernels {
    // out [width] = scale * a stored row; of float32, bfloat16 or float16.
    void (*widen)(const void* stored, Number number, int width, float scale, float* out);
    // out [width] = x / sqrt(mean of x² + eps) * weight
    void (*rms_norm)(const float* x, const float* weight, int width, float eps, float* out);
    void (*add)(const float* x, int width, float* to);
    // out [width] = gate(gate_up[0, width)) * gate_up[width, 2 * width)
    void (*gate_mul)(const float* gate_up, Gate gate, int width, float* out);
    void (*softcap)(float* x, int width, float cap);
    void (*scale)(float* x, int width, float factor);
    bool (*is_finite)(const float* x, int width);
    // One token: its heads, position and slot.
    void (*rotate_and_write)(const RotateAndWrite&, const float* qkv, int64_t position,
                             int64_t slot, float* queries);
};

// Those of the instructions in use.
const RowKernels& row_kernels();

}  // namespace forebay
