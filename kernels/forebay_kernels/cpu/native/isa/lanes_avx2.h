// Sixteen lanes in AVX2 with FMA: two registers each.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace forebay {
namespace FOREBAY_ISA {
namespace {

struct Floats {
    __m256 a, b;
};
struct Ints {
    __m256i a, b;
};
using Bytes = Ints;

// What fits into 16 registers.
constexpr int tiles_at_once = 1;
constexpr int code_rows_at_once = 3;
constexpr int most_code_rows = 4;  // some sums wait in memory
constexpr int float_rows_at_once = 6;
constexpr int unrolled_steps = 8;

FB_INLINE Floats zero_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
FB_INLINE Floats spread(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FB_INLINE Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
FB_INLINE void store(float* to, Floats x) {
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps(to + 8, x.b);
}
FB_INLINE Floats load_first(const float* from, int n) {
    alignas(32) float all[16] = {};
    for (int i = 0; i < n; ++i) all[i] = from[i];
    return load(all);
}
FB_INLINE void store_first(float* to, Floats x, int n) {
    alignas(32) float all[16];
    store(all, x);
    for (int i = 0; i < n; ++i) to[i] = all[i];
}
FB_INLINE __m256 half_of_half(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
FB_INLINE Floats load_half(const uint16_t* from) {
    return {half_of_half(from), half_of_half(from + 8)};
}
FB_INLINE Floats add(Floats x, Floats y) {
    return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
FB_INLINE Floats mul(Floats x, Floats y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
FB_INLINE Floats fma(Floats x, Floats y, Floats z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

FB_INLINE Ints zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
FB_INLINE Ints spread_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
FB_INLINE __m256i eight_uint8(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
FB_INLINE Ints load_uint8(const uint8_t* from) { return {eight_uint8(from), eight_uint8(from + 8)}; }
FB_INLINE Ints subtract(Ints x, Ints y) {
    return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
FB_INLINE Ints add_ints(Ints x, Ints y) {
    return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
// x times y, both of them within 16 bits, x not negative.
FB_INLINE Ints mul_short(Ints x, Ints y) {
    return {_mm256_madd_epi16(x.a, y.a), _mm256_madd_epi16(x.b, y.b)};
}
FB_INLINE Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

FB_INLINE Ints load_ints(const void* from) {
    const __m256i* at = static_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
}
FB_INLINE Bytes load_bytes(const uint8_t* from) { return load_ints(from); }
FB_INLINE void store_bytes(uint8_t* to, Bytes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), x.b);
}
// Each byte's bits from `shift` on, those of mask.
FB_INLINE Bytes take_bits(Bytes x, int shift, uint8_t mask) {
    const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(_mm256_srli_epi16(x.a, shift), kept),
            _mm256_and_si256(_mm256_srli_epi16(x.b, shift), kept)};
}
// Where the bits of x are clear, those of y, moved up by shift, which leaves them within a byte.
FB_INLINE Bytes put_bits(Bytes x, Bytes y, int shift) {
    return {_mm256_or_si256(x.a, _mm256_slli_epi16(y.a, shift)),
            _mm256_or_si256(x.b, _mm256_slli_epi16(y.b, shift))};
}
// Each lane's byte i.
FB_INLINE Ints byte_of_lanes(Bytes x, int i) {
    const __m256i kept = _mm256_set1_epi32(255);
    return {_mm256_and_si256(_mm256_srli_epi32(x.a, 8 * i), kept),
            _mm256_and_si256(_mm256_srli_epi32(x.b, 8 * i), kept)};
}
// The bfloat16 in each lane's low and high half.
FB_INLINE Floats low_bfloat16(Ints x) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(x.a, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(x.b, 16))};
}
FB_INLINE Floats high_bfloat16(Ints x) {
    const __m256i kept = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(x.a, kept)),
            _mm256_castsi256_ps(_mm256_and_si256(x.b, kept))};
}

constexpr bool tells_narrow = true;

FB_INLINE Ints add_shorts(Ints x, Ints y) {
    return {_mm256_add_epi16(x.a, y.a), _mm256_add_epi16(x.b, y.b)};
}
FB_INLINE Ints mul_pairs(Bytes codes, Ints inputs) {
    return {_mm256_maddubs_epi16(codes.a, inputs.a), _mm256_maddubs_epi16(codes.b, inputs.b)};
}
FB_INLINE Ints widen(Ints shorts, int16_t factor) {
    const __m256i by = _mm256_set1_epi16(factor);
    return {_mm256_madd_epi16(shorts.a, by), _mm256_madd_epi16(shorts.b, by)};
}

// Of eight steps at most: 8 * 2 * 15 * 127 fits into 16 bits.
template <bool is_wide>
struct Sums {
    Ints sums;
    FB_INLINE void start(Ints) { sums = zero_ints(); }
    FB_INLINE void add_products(Bytes codes, Ints inputs) {
        sums = add_shorts(sums, mul_pairs(codes, inputs));
    }
    FB_INLINE Ints total(Ints from) const { return add_ints(from, widen(sums, 1)); }
};

// The two halves of a code by themselves.
template <>
struct Sums<true> {
    Ints low, high;
    FB_INLINE void start(Ints) { low = high = zero_ints(); }
    FB_INLINE void add_products(Bytes codes, Ints inputs) {
        low = add_shorts(low, mul_pairs(take_bits(codes, 0, 15), inputs));
        high = add_shorts(high, mul_pairs(take_bits(codes, 4, 15), inputs));
    }
    FB_INLINE Ints total(Ints from) const {
        return add_ints(add_ints(from, widen(low, 1)), widen(high, 16));
    }
};

FB_INLINE Ints max_ints(Ints x, Ints y) {
    return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
// The largest of the lanes, all of them not negative.
FB_INLINE int32_t largest(Ints x) {
    const __m256i eight = _mm256_max_epi32(x.a, x.b);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
}
FB_INLINE Ints magnitude_bits(Floats x) {
    const __m256i kept = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(x.a), kept),
            _mm256_and_si256(_mm256_castps_si256(x.b), kept)};
}
// Rounded to the nearest, halves to even, and each within eight bits: what is stored.
FB_INLINE Ints store_rounded(int8_t* to, Floats x) {
    const Ints rounded = {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
    const __m256i shorts =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded.a, rounded.b), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packs_epi16(_mm256_castsi256_si128(shorts),
                                     _mm256_extracti128_si256(shorts, 1)));
    return rounded;
}
FB_INLINE int32_t sum_of_ints(Ints x) {
    const __m256i eight = _mm256_add_epi32(x.a, x.b);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtsi128_si32(four);
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
