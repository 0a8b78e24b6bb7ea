// The weights of one output as float32: a row of an embedding, from what the head is multiplied by.
#include <cstring>

#include "codes_layout.h"
#include "half.h"
#include "linear.h"

namespace forebay {
namespace {

// Bits of one field of a run: `width` of them at place `place`.
int field(const uint8_t* run, int byte, int place, int width) {
    return run[byte] >> (place * width) & ((1 << width) - 1);
}

int code_at(const uint8_t* record, int bits, int step, int byte) {
    const uint8_t* last = record + (bits - 1) * run_bytes;
    switch (bits) {
        case 8: return record[step * run_bytes + byte];
        case 2:
        case 3: {
            const int low = field(record + step / 4 * run_bytes, byte, step % 4, 2);
            return bits == 2 ? low : low | field(last, byte, step, 1) << 2;
        }
        default: break;
    }
    const int low = field(record + step / 2 * run_bytes, byte, step % 2, 4);
    if (bits == 4) return low;
    if (bits == 5) return low | field(last, byte, step, 1) << 4;
    return low | field(record + (4 + step / 4) * run_bytes, byte, step % 4, 2) << 4;
}

float weight_of_code(const Matrix& matrix, int tile, int lane, int k, int code) {
    const int64_t place = int64_t{k / matrix.group_size} * tile_outputs + lane;
    const float scale = from_half(matrix.tile_scales(tile)[place]) * matrix.scale_factor;
    const uint8_t* zeros = matrix.tile_zeros(tile);
    switch (matrix.zero_kind) {
        case ZeroKind::middle: return static_cast<float>(code - (1 << (matrix.bits - 1))) * scale;
        case ZeroKind::integers: return static_cast<float>(code - zeros[place]) * scale;
        case ZeroKind::mins: break;
    }
    uint16_t min;
    std::memcpy(&min, zeros + 2 * place, 2);
    return static_cast<float>(code) * scale + from_half(min) * matrix.min_factor;
}

float weight_at(const Matrix& matrix, int row, int k) {
    const int tile = row / tile_outputs, lane = row % tile_outputs;
    const uint8_t* from = matrix.tile(tile);
    if (matrix.format == Format::float32) {
        float weight;
        std::memcpy(&weight, from + 4 * (int64_t{k} * tile_outputs + lane), 4);
        return weight;
    }
    if (matrix.format == Format::bfloat16) {
        uint32_t bits = 0;
        std::memcpy(reinterpret_cast<uint8_t*>(&bits) + 2,
                    from + int64_t{k / 2} * 64 + 4 * lane + k % 2 * 2, 2);
        float weight;
        std::memcpy(&weight, &bits, 4);
        return weight;
    }
    const uint8_t* record = from + k / block_inputs * matrix.record_bytes();
    const int code = code_at(record, matrix.bits, k % block_inputs / 4, 4 * lane + k % 4);
    return weight_of_code(matrix, tile, lane, k, code);
}

}  // namespace

void embedding_row(const Matrix& matrix, int row, float* out) {
    if (matrix.input_order == nullptr) {
        for (int k = 0; k < matrix.num_stored; ++k) out[k] = weight_at(matrix, row, k);
        return;
    }
    std::memset(out, 0, 4 * int64_t{matrix.num_inputs});
    for (int k = 0; k < matrix.num_stored; ++k) {
        out[matrix.input_order[k]] += weight_at(matrix, row, k);
    }
}

}  // namespace forebay
