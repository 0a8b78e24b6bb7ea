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

// So many units go through each pass before the next one: passes of one unit would wait for each
// other, and scales are divided as vectors.
constexpr int units_at_once = 64;

// Of some units: their largest magnitudes' bits, what their inputs are multiplied by, the scales
// that undo it, and the sums of their codes.
struct SomeUnits {
    int num_units;
    int32_t largest[units_at_once];
    float inverses[units_at_once];
    float scales[units_at_once];
    int32_t sums[units_at_once];
};

FB_INLINE void find_largest(const float* x, int num_inputs, SomeUnits& units) {
    for (int unit = 0; unit < units.num_units; ++unit, x += num_inputs) {
        Ints magnitude = magnitude_bits(load(x));
        if (num_inputs > 16) magnitude = max_ints(magnitude, magnitude_bits(load(x + 16)));
        units.largest[unit] = largest(magnitude);
    }
}

// A scale is not a number if one input was not finite, so that the row's outputs are not, either.
FB_INLINE void find_scales(SomeUnits& units) {
    for (int unit = 0; unit < units.num_units; ++unit) {
        const float most = float_of(units.largest[unit]);
        const bool is_finite = units.largest[unit] < infinity_bits;
        const bool is_some = is_finite && most >= least;
        const float divisor = is_some ? most : 1.0f;
        units.inverses[unit] = is_some ? largest_code / divisor : 0.0f;
        units.scales[unit] = is_some ? divisor / largest_code
                                     : (is_finite ? 0.0f : __builtin_nanf(""));
    }
}

FB_INLINE void store_codes(const float* x, int num_inputs, SomeUnits& units, int8_t* codes) {
    for (int unit = 0; unit < units.num_units; ++unit, x += num_inputs, codes += num_inputs) {
        const float inverse = units.inverses[unit];
        const bool is_zero = inverse == 0.0f;
        const Floats by = spread(inverse);
        Ints sums = store_rounded(codes, is_zero ? zero_floats() : mul(load(x), by));
        if (num_inputs > 16) {
            const Floats scaled = is_zero ? zero_floats() : mul(load(x + 16), by);
            sums = add_ints(sums, store_rounded(codes + 16, scaled));
        }
        units.sums[unit] = sum_of_ints(sums);
    }
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

// Of units from `first` on; see RoundedRows.
FB_INLINE void put_offsets(const Matrix& matrix, int first, const SomeUnits& units,
                           void* offsets) {
    if (matrix.zero_kind != ZeroKind::mins) {
        const int32_t zero = matrix.zero_kind == ZeroKind::middle ? 1 << (matrix.bits - 1) : 1;
        int32_t* to = static_cast<int32_t*>(offsets) + first;
        for (int unit = 0; unit < units.num_units; ++unit) to[unit] = -zero * units.sums[unit];
        return;
    }
    const int group_units = matrix.group_size / matrix.unit_inputs();
    int within = first % group_units;
    float* to = static_cast<float*>(offsets) + first / group_units;
    for (int unit = 0; unit < units.num_units; ++unit) {
        const float offset =
            units.scales[unit] * static_cast<float>(units.sums[unit]) * matrix.min_factor;
        *to = within == 0 ? offset : *to + offset;
        if (++within == group_units) {
            within = 0;
            ++to;
        }
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
    float buffer[units_at_once * block_inputs];
    SomeUnits units;
    for (int unit = 0; unit < num_units; unit += units_at_once) {
        units.num_units = num_units - unit < units_at_once ? num_units - unit : units_at_once;
        const int first = unit * num_inputs;
        const float* from = take_inputs(matrix, x, first, units.num_units * num_inputs, buffer);
        find_largest(from, num_inputs, units);
        find_scales(units);
        store_codes(from, num_inputs, units, codes + first);
        for (int i = 0; i < units.num_units; ++i) {
            scales[unit + i] = units.scales[i] * matrix.scale_factor;
        }
        put_offsets(matrix, unit, units, offsets);
    }
}

void round_bfloat16(const Matrix& matrix, const float* x, uint16_t* rounded) {
    for (int k = 0; k < matrix.num_stored; ++k) rounded[k] = to_bfloat16(x[k]);
    if (matrix.num_stored % 2) rounded[matrix.num_stored] = 0;
}

}  // namespace FOREBAY_ISA
}  // namespace forebay
