// One layer's keys and values, in blocks of a paged cache. Mirrored by instructions.py.
#pragma once

#include <cstdint>

namespace forebay {

// The most numbers of a head; kernels keep one on their stacks.
constexpr int max_head_dim = 512;

// How a number is stored.
enum class Number : int32_t { float32, bfloat16, float16, fp8, int8, int4 };

// k, v: [num_blocks, block_size, num_kv_heads, head_dim], int4 with element i in the low four bits
// of byte i for i < head_dim / 2 and element i + head_dim / 2 in its high four, each plus 8.
// k_scale, v_scale: [num_blocks, block_size, num_kv_heads], of int8 and int4.
struct KvCache {
    Number number;
    int32_t num_blocks;
    int32_t block_size;
    int32_t num_kv_heads;
    int32_t head_dim;
    void* k;
    void* v;
    float* k_scale;
    float* v_scale;

    int64_t head_bytes() const {
        switch (number) {
            case Number::float32: return int64_t{4} * head_dim;
            case Number::bfloat16:
            case Number::float16: return int64_t{2} * head_dim;
            case Number::int4: return head_dim / 2;
            default: return head_dim;
        }
    }
};

}  // namespace forebay
