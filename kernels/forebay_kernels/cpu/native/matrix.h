// A weight matrix as the products read it: N outputs by K stored inputs, of borrowed memory.
//
// Outputs lie in tiles of 16, so that a vector of 16 lanes holds one number of each output and no
// product ever adds across lanes. Padding: N to 16, and of codes K to 32, with scales of zero.
//
//   float32   [tile][K][16] float
//   bfloat16  [tile][ceil(K / 2)][16][2] uint16: pairs of inputs, as dot products take them
//   codes     [tile][K / 32] records of 64 * bits bytes; see codes_layout.h
//             scales [tile][group][16] float16, each times scale_factor, a power of two
//             zeros  by ZeroKind [tile][group][16]
//
// The weight of a code is (code - zero) * scale, or code * scale + min.
#pragma once

#include <cstdint>

namespace forebay {

constexpr int tile_outputs = 16;
constexpr int block_inputs = 32;

enum class Format : int32_t { float32, bfloat16, codes };

enum class ZeroKind : int32_t {
    middle,    // every zero is 2 ** (bits - 1); zeros is null
    integers,  // uint8, subtracted from the code
    mins,      // float16, each times min_factor, added to code * scale
};

// Mirrored by native_structs.py.
struct Matrix {
    Format format;
    int32_t bits;        // of codes: 2, 3, 4, 5, 6 or 8
    ZeroKind zero_kind;
    int32_t group_size;  // inputs that share a scale: 16, or a multiple of 32
    int32_t num_outputs;
    int32_t num_inputs;  // that come in
    int32_t num_stored;  // K: num_inputs unless there is an input_order
    float scale_factor;
    float min_factor;
    const void* weights;
    const uint16_t* scales;
    const void* zeros;
    const int32_t* input_order;  // [K]: which input each stored one is; null: in order

    int num_tiles() const { return (num_outputs + tile_outputs - 1) / tile_outputs; }
    int num_blocks() const { return (num_stored + block_inputs - 1) / block_inputs; }
    int num_groups() const {
        return (num_blocks() * block_inputs + group_size - 1) / group_size;
    }
    // Inputs that are summed before a scale is applied: those of a block, or of half of one.
    int unit_inputs() const { return group_size < block_inputs ? group_size : block_inputs; }
    int num_units() const { return num_blocks() * block_inputs / unit_inputs(); }
    int64_t record_bytes() const { return 64 * bits; }
    int64_t tile_bytes() const {
        if (format == Format::float32) return int64_t{64} * num_stored;
        if (format == Format::bfloat16) return int64_t{64} * ((num_stored + 1) / 2);
        return record_bytes() * num_blocks();
    }
    const uint8_t* tile(int index) const {
        return static_cast<const uint8_t*>(weights) + index * tile_bytes();
    }
    const uint16_t* tile_scales(int index) const {
        return scales + int64_t{index} * num_groups() * tile_outputs;
    }
    const uint8_t* tile_zeros(int index) const {
        if (zeros == nullptr) return nullptr;
        const int64_t width = zero_kind == ZeroKind::mins ? 2 : 1;
        return static_cast<const uint8_t*>(zeros) + index * width * num_groups() * tile_outputs;
    }
};

}  // namespace forebay
