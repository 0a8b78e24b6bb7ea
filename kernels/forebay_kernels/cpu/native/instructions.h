// What a program is made of: each instruction an operation on buffers of float32, one row a token
// or a sampled token. Mirrored by instructions.py.
#pragma once

#include <cstdint>

#include "kv_cache.h"
#include "linear.h"

namespace forebay {

struct Matrix;

enum class Operation : int32_t {
    embedding,
    rms_norm,
    linear,
    add,
    rotate_and_write,
    attention,
    gate_mul,
    softcap,
    scale,
    take_sampled,
    flag_finite,
};

enum class RowsOf : int32_t { tokens, sampled };

struct Instruction {
    Operation operation;
    RowsOf rows;
};

// The rows of token ids. table [num_ids, width] of `number`, or else a packed matrix.
struct Embedding : Instruction {
    Number number;
    int32_t width;
    float scale;
    int32_t num_ids;
    const void* table;
    const Matrix* matrix;
    float* out;  // [tokens, width]
};

struct RmsNorm : Instruction {
    int32_t width;
    float eps;
    const float* weight;  // [width]
    const float* x;       // [rows, width]
    float* out;           // [rows, width], may be x
};

struct LinearProduct : Instruction {
    int32_t x_stride;
    int32_t out_stride;
    int32_t adds;  // to what out holds
    InputForm input_form;
    const Matrix* matrix;
    const float* bias;  // [outputs] or null
    const float* x;     // [rows, x_stride]
    float* out;         // [rows, out_stride]
};

struct Add : Instruction {
    int32_t width;
    const float* x;  // [rows, width]
    float* to;       // [rows, width]
};

// The first rotated_size numbers of each query and key head are turned by their position, after a
// norm where there is a weight; then keys and values are written to their slots.
struct RotateAndWrite : Instruction {
    int32_t num_heads;
    int32_t rotated_size;
    int32_t num_positions;
    float eps;
    KvCache cache;
    const float* norm_weight;  // [num_heads + num_kv_heads, head_dim] or null
    const float* cos;          // [num_positions, rotated_size], both halves the same
    const float* sin;          // [num_positions, rotated_size], the first half negative
    const float* qkv;          // [tokens, (num_heads + 2 num_kv_heads) * head_dim]
    float* queries;            // [tokens, num_heads * head_dim]
};

struct Attention : Instruction {
    int32_t num_heads;
    int32_t window;  // keys that a query sees, its own included; 0: all
    float scale;
    float softcap;  // 0: none
    InputForm input_form;
    KvCache cache;
    const float* sinks;    // [num_heads] or null
    const float* queries;  // [tokens, num_heads * head_dim]
    float* out;            // [tokens, num_heads * head_dim], may be queries
};

enum class Gate : int32_t { silu, gelu_tanh };

struct GateMul : Instruction {
    Gate gate;
    int32_t width;
    const float* gate_up;  // [rows, 2 * width]
    float* out;            // [rows, width]
};

// In place: cap * tanh(x / cap).
struct Softcap : Instruction {
    int32_t width;
    float cap;
    float* x;  // [rows, width]
};

// In place.
struct Scale : Instruction {
    int32_t width;
    float factor;
    float* x;  // [rows, width]
};

struct TakeSampled : Instruction {
    int32_t width;
    const float* x;  // [tokens, width]
    float* out;      // [sampled, width]
};

struct FlagFinite : Instruction {
    int32_t width;
    const float* x;  // [rows, width]
    uint8_t* flags;  // [rows]
};

}  // namespace forebay
