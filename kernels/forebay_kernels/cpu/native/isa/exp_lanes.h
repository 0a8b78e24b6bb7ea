// exp, sixteen numbers at a time; see functions.h for one.
#pragma once

#include "functions.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

#if defined(__AVX512F__)

FB_INLINE Floats larger(Floats x, Floats y) { return _mm512_max_ps(x, y); }
FB_INLINE Floats divide(Floats x, Floats y) { return _mm512_div_ps(x, y); }
FB_INLINE __m256 low_half(Floats x) { return _mm512_castps512_ps256(x); }
FB_INLINE __m256 high_half(Floats x) { return _mm512_extractf32x8_ps(x, 1); }
// 2 ** power * x, of whole powers
FB_INLINE Floats move_exponent(Floats x, Floats power) { return _mm512_scalef_ps(x, power); }
// x where y is not below a bound, else 0
FB_INLINE Floats unless_below(Floats x, Floats y, Floats bound) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, bound, _CMP_NLT_UQ), x);
}

#elif defined(__AVX2__)

FB_INLINE Floats larger(Floats x, Floats y) {
    return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
FB_INLINE Floats divide(Floats x, Floats y) {
    return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
FB_INLINE __m256 low_half(Floats x) { return x.a; }
FB_INLINE __m256 high_half(Floats x) { return x.b; }
FB_INLINE __m256 power_of_two(__m256 power) {
    const __m256i whole = _mm256_add_epi32(_mm256_cvtps_epi32(power), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(whole, 23));
}
// 2 ** power * x, of whole powers
FB_INLINE Floats move_exponent(Floats x, Floats power) {
    return mul(x, {power_of_two(power.a), power_of_two(power.b)});
}
// x where y is not below a bound, else 0
FB_INLINE Floats unless_below(Floats x, Floats y, Floats bound) {
    return {_mm256_and_ps(x.a, _mm256_cmp_ps(y.a, bound.a, _CMP_NLT_UQ)),
            _mm256_and_ps(x.b, _mm256_cmp_ps(y.b, bound.b, _CMP_NLT_UQ))};
}

#endif

#if defined(__AVX2__)

// e ** x for x up to 88; see exp_of.
FB_INLINE Floats exp_lanes(Floats x) {
    const Floats least = spread(-87.0f);
    // The second operand is what a maximum gives where one is NaN.
    const Floats bounded = larger(least, x);
    const Floats shifted = fma(bounded, spread(1.44269504f), spread(rounder));
    const Floats power = add(shifted, spread(-rounder));
    Floats rest = fma(power, spread(-0x1.62e4p-1f), bounded);
    rest = fma(power, spread(-0x1.7f7d1cp-20f), rest);
    Floats sum = fma(spread(0.00138145405f), rest, spread(0.00836874545f));
    sum = fma(sum, rest, spread(0.0416683890f));
    sum = fma(sum, rest, spread(0.166665211f));
    sum = fma(sum, rest, spread(0.499999940f));
    sum = add(fma(sum, mul(rest, rest), rest), spread(1.0f));
    return unless_below(move_exponent(sum, power), x, least);
}

// Halves with halves, as the other sets of instructions do it.
template <class Join>
FB_INLINE float join_lanes(__m256 eight, const Join& join) {
    __m128 x = join(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    x = join(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(join(x, _mm_movehdup_ps(x)));
}
FB_INLINE float sum_of_lanes(Floats x) {
    return join_lanes(_mm256_add_ps(low_half(x), high_half(x)),
                      [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
FB_INLINE float largest_lane(Floats x) {
    return join_lanes(_mm256_max_ps(low_half(x), high_half(x)),
                      [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}

#else

FB_INLINE Floats divide(const Floats& x, const Floats& y) {
    return by_lane<Floats>([&](int i) { return x.lane[i] / y.lane[i]; });
}

FB_INLINE Floats larger(const Floats& x, const Floats& y) {
    return by_lane<Floats>([&](int i) { return x.lane[i] > y.lane[i] ? x.lane[i] : y.lane[i]; });
}
FB_INLINE Floats exp_lanes(const Floats& x) {
    return by_lane<Floats>([&](int i) { return exp_of(x.lane[i]); });
}

// In one order, the same for all sets of instructions.
FB_INLINE float sum_of_lanes(const Floats& x) {
    float lanes[16];
    store(lanes, x);
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) lanes[i] += lanes[half + i];
    }
    return lanes[0];
}

FB_INLINE float largest_lane(const Floats& x) {
    float lanes[16];
    store(lanes, x);
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) {
            lanes[i] = lanes[i] > lanes[half + i] ? lanes[i] : lanes[half + i];
        }
    }
    return lanes[0];
}

#endif

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
