// Numbers as they are stored: to float32 and back, rounded to the nearest, halves to even.
#pragma once

#include <cstdint>

#include "../kv_cache.h"
#include "functions.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

FB_ALWAYS_INLINE float of_bfloat16(uint16_t bits) {
    return of_bits(static_cast<uint32_t>(bits) << 16);
}

FB_ALWAYS_INLINE uint16_t to_bfloat16(float x) {
    const uint32_t bits = to_bits(x);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// A product moves the exponent, and gets those right that are too small for one.
FB_ALWAYS_INLINE float of_float16(uint16_t bits) {
    const uint32_t size = (bits & 0x7fffu) << 13;
    const uint32_t whole = to_bits(of_bits(size) * 0x1p112f);
    const uint32_t none = size >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity, or with more NaN
    return of_bits(whole | none | (bits & 0x8000u) << 16);
}

// x is within 65504.
FB_ALWAYS_INLINE uint16_t to_float16(float x) {
    const uint32_t bits = to_bits(x), size = bits & 0x7fffffffu;
    const uint32_t usual = ((size + 0xfffu + ((size >> 13) & 1u)) >> 13) - (112u << 10);
    const uint32_t small = to_bits(of_bits(size) * 0x1p24f + rounder) - to_bits(rounder);
    return static_cast<uint16_t>((size < 0x38800000u ? small : usual) | ((bits >> 16) & 0x8000u));
}

FB_ALWAYS_INLINE float of_fp8(uint8_t bits) {
    const uint32_t size = bits & 0x7fu;
    const float usual = of_bits((size << 20) + (120u << 23));
    const float small = static_cast<float>(static_cast<int32_t>(size)) * 0x1p-9f;
    return of_bits(to_bits(size < 8u ? small : usual) | (bits & 0x80u) << 24);
}

// x is within 448.
FB_ALWAYS_INLINE uint8_t to_fp8(float x) {
    const uint32_t bits = to_bits(x), size = bits & 0x7fffffffu;
    const uint32_t usual = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
    const uint32_t small = to_bits(of_bits(size) * 0x1p9f + rounder) - to_bits(rounder);
    return static_cast<uint8_t>((size < 0x3c800000u ? small : usual) | ((bits >> 24) & 0x80u));
}

// The largest number that is stored: what infinity becomes, and of those that cannot hold it
// whatever is beyond.
constexpr float largest_half = 65504.0f, largest_fp8 = 448.0f, largest_bfloat16 = 0x1.fep127f;

FB_ALWAYS_INLINE float within(float x, float largest) {
    return x > largest ? largest : (x < -largest ? -largest : x);
}

// NaN becomes 0, and infinity the largest float16, which every kind of cache can hold: a slot is
// read with a weight of zero by whoever gets its block next, and zero times NaN is NaN.
FB_ALWAYS_INLINE float finite(float x) {
    const float size = magnitude(x);
    const float bounded = size > 0x1.fffffep127f ? (x > 0 ? largest_half : -largest_half) : x;
    return size == size ? bounded : 0.0f;
}

// One head's numbers [size], finite, as a cache keeps them.
template <class Stored, class Round>
FB_ALWAYS_INLINE void store_all(const float* numbers, int size, Stored* to, Round round) {
    for (int i = 0; i < size; ++i) to[i] = round(numbers[i]);
}

// The scale by which a head's largest number becomes `largest`.
FB_ALWAYS_INLINE float amplitude_of(const float* numbers, int size) {
    float amplitude = 1e-20f;
    for (int i = 0; i < size; ++i) {
        const float each = magnitude(numbers[i]);
        amplitude = each > amplitude ? each : amplitude;
    }
    return amplitude;
}

inline float store_int8(const float* numbers, int size, int8_t* to) {
    const float amplitude = amplitude_of(numbers, size), inverse = 127.0f / amplitude;
    for (int i = 0; i < size; ++i) {
        to[i] = static_cast<int8_t>(within(whole_of(numbers[i] * inverse), 127.0f));
    }
    return amplitude / 127.0f;
}

inline float store_int4(const float* numbers, int size, uint8_t* to) {
    const float amplitude = amplitude_of(numbers, size), inverse = 7.0f / amplitude;
    const int half = size / 2;
    for (int i = 0; i < half; ++i) {
        const float low = within(whole_of(numbers[i] * inverse), 7.0f) + 8.0f;
        const float high = within(whole_of(numbers[half + i] * inverse), 7.0f) + 8.0f;
        to[i] = static_cast<uint8_t>(static_cast<int32_t>(low) | static_cast<int32_t>(high) << 4);
    }
    return amplitude / 7.0f;
}

// One head's numbers [size], finite, into its place; returns its scale.
inline float store_head(const float* numbers, int size, Number number, void* to) {
    switch (number) {
        case Number::float32:
            store_all(numbers, size, static_cast<float*>(to), [](float x) { return x; });
            return 1.0f;
        case Number::bfloat16:
            store_all(numbers, size, static_cast<uint16_t*>(to),
                      [](float x) { return to_bfloat16(within(x, largest_bfloat16)); });
            return 1.0f;
        case Number::float16:
            store_all(numbers, size, static_cast<uint16_t*>(to),
                      [](float x) { return to_float16(within(x, largest_half)); });
            return 1.0f;
        case Number::fp8:
            store_all(numbers, size, static_cast<uint8_t*>(to),
                      [](float x) { return to_fp8(within(x, largest_fp8)); });
            return 1.0f;
        case Number::int8: return store_int8(numbers, size, static_cast<int8_t*>(to));
        case Number::int4: return store_int4(numbers, size, static_cast<uint8_t*>(to));
    }
    return 1.0f;
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
