// exp, tanh and rounding of single numbers, without branches, so that the compiler makes vectors of
// loops over them. All have internal linkage, and nothing of std is called: a function that the
// linker merged with another set's would be run by processors that lack its instructions.
#pragma once

#include <cstdint>

#define FB_ALWAYS_INLINE inline __attribute__((always_inline))

namespace forebay {
namespace FOREBAY_ISA {
namespace {

FB_ALWAYS_INLINE uint32_t to_bits(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

FB_ALWAYS_INLINE float of_bits(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

// What is added to a number within 2 ** 22 so that its fraction is rounded away, halves to even.
constexpr float rounder = 0x1.8p23f;

FB_ALWAYS_INLINE float whole_of(float x) { return (x + rounder) - rounder; }

FB_ALWAYS_INLINE float magnitude(float x) { return of_bits(to_bits(x) & 0x7fffffffu); }

// e ** x: within 1.5e-7 of it relatively; 0 below -87, at most 1.6e38, exactly 1 at 0. NaN stays.
FB_ALWAYS_INLINE float exp_of(float x) {
    constexpr float least = -87.0f, most = 88.0f;
    const float bounded = x < least ? least : (x > most ? most : x);
    const float shifted = bounded * 1.44269504f + rounder;
    const float power = shifted - rounder;
    const float rest = (bounded - power * 0x1.62e4p-1f) - power * 0x1.7f7d1cp-20f;
    float sum = 0.00138145405f;
    sum = sum * rest + 0.00836874545f;
    sum = sum * rest + 0.0416683890f;
    sum = sum * rest + 0.166665211f;
    sum = sum * rest + 0.499999940f;
    sum = sum * (rest * rest) + rest + 1.0f;
    const float two_to_power = of_bits((to_bits(shifted) - to_bits(rounder) + 127u) << 23);
    return x < least ? 0.0f : sum * two_to_power;
}

// Within 3e-7 relatively.
FB_ALWAYS_INLINE float tanh_of(float x) {
    const float size = magnitude(x);
    const float square = size < 0.6f ? x * x : 0.0f;
    float near = -0.00589511916f;
    near = near * square + 0.0207959414f;
    near = near * square - 0.0537838228f;
    near = near * square + 0.133319244f;
    near = near * square - 0.333332986f;
    near = x + x * square * near;
    const float decayed = exp_of(-2.0f * size);
    const float far = (1.0f - decayed) / (1.0f + decayed);
    return size < 0.6f ? near : of_bits(to_bits(far) | (to_bits(x) & 0x80000000u));
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
