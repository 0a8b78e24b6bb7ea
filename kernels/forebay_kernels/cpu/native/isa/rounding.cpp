// Inputs rounded to what dot products take; see RoundedRows.
#include "lanes.h"
#include "products_of_isa.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

constexpr int largest_code = 127;
// What is less in magnitude is zero: its inverse would not be a number.
constexpr float least = 1e-30f;
constexpr int32_t infinity_bits = 0x7f800000;

FB_INLINE float float_of(int32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

// The scale of a unit whose largest magnitude has these bits: not a number if one input was not
// finite, so that the row's outputs are not, either.
struct Scale {
    float scale, inverse;
};
FB_INLINE Scale scale_of(int32_t largest_bits) {
    if (largest_bits >= infinity_bits) return {__builtin_nanf(""), 0.0f};
    const float most = float_of(largest_bits);
    if (most < least) return {0.0f, 0.0f};
    return {most / largest_code, largest_code / most};
}

// Stores a unit's codes, and gives their sum and scale.
struct Rounded {
    float scale;
    int32_t sum;
};
FB_INLINE Rounded round_unit(const float* x, int num_inputs, int8_t* codes) {
    Ints magnitude = magnitude_bits(load(x));
    if (num_inputs > 16) magnitude = max_ints(magnitude, magnitude_bits(load(x + 16)));
    const Scale by = scale_of(largest(magnitude));
    int32_t sum = 0;
    for (int i = 0; i < num_inputs; i += 16) {
        const bool is_zero = by.inverse == 0.0f;
        const Floats scaled = is_zero ? zero_floats() : mul(load(x + i), spread(by.inverse));
        store_rounded(codes + i, scaled);
        sum += sum_rounded(scaled);
    }
    return {by.scale, sum};
}

// Stored inputs from `first` on, zeros past the last.
FB_INLINE const float* take_inputs(const Matrix& matrix, const float* x, int first, int num,
                                   float* buffer) {
    if (matrix.input_order == nullptr && first + num <= matrix.num_stored) return x + first;
    for (int i = 0; i < num; ++i) {
        const int stored = first + i;
        if (stored >= matrix.num_stored) {
            buffer[i] = 0.0f;
        } else {
            buffer[i] = x[matrix.input_order == nullptr ? stored : matrix.input_order[stored]];
        }
    }
    return buffer;
}

FB_INLINE void put_offset(const Matrix& matrix, int unit, const Rounded& rounded, void* offsets) {
    if (matrix.zero_kind == ZeroKind::mins) {
        const int group = unit * matrix.unit_inputs() / matrix.group_size;
        const bool is_first = unit * matrix.unit_inputs() % matrix.group_size == 0;
        float* of_group = static_cast<float*>(offsets) + group;
        const float offset = rounded.scale * static_cast<float>(rounded.sum) * matrix.min_factor;
        *of_group = is_first ? offset : *of_group + offset;
    } else {
        const int32_t zero = matrix.zero_kind == ZeroKind::middle ? 1 << (matrix.bits - 1) : 1;
        static_cast<int32_t*>(offsets)[unit] = -zero * rounded.sum;
    }
}

FB_INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

// To the nearest, halves to even; what is not a number stays so.
FB_INLINE uint16_t to_bfloat16(float x) {
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffffu) > static_cast<uint32_t>(infinity_bits)) return bits >> 16 | 64;
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

}  // namespace

void round_codes(const Matrix& matrix, const float* x, const RoundedRows& to, int row) {
    const int num_inputs = matrix.unit_inputs(), num_units = matrix.num_units();
    int8_t* codes = to.codes + int64_t{row} * to.code_stride;
    float* scales = to.scales + int64_t{row} * to.unit_stride;
    void* offsets = static_cast<float*>(to.offsets) + int64_t{row} * to.unit_stride;
    float buffer[block_inputs];
    for (int unit = 0; unit < num_units; ++unit) {
        const int first = unit * num_inputs;
        const float* from = take_inputs(matrix, x, first, num_inputs, buffer);
        const Rounded rounded = round_unit(from, num_inputs, codes + first);
        scales[unit] = rounded.scale * matrix.scale_factor;
        put_offset(matrix, unit, rounded, offsets);
    }
}

void round_bfloat16(const Matrix& matrix, const float* x, uint16_t* rounded) {
    for (int k = 0; k < matrix.num_stored; ++k) rounded[k] = to_bfloat16(x[k]);
    if (matrix.num_stored % 2) rounded[matrix.num_stored] = 0;
}

}  // namespace FOREBAY_ISA
}  // namespace forebay
