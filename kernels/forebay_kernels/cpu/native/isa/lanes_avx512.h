// Sixteen lanes in AVX-512, with or without VNNI and dot products of bfloat16.
#pragma once

// GCC 12 takes its own headers' undefined registers for a mistake.
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

namespace forebay {
namespace FOREBAY_ISA {
namespace {

using Floats = __m512;
using Ints = __m512i;
using Bytes = __m512i;

// What fits into 32 registers: accumulators, two tiles' weights and an input.
constexpr int tiles_at_once = 2;
constexpr int code_rows_at_once = 6;
constexpr int most_code_rows = 8;  // some sums wait in memory
constexpr int float_rows_at_once = 12;
constexpr int unrolled_steps = 8;

FB_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }
FB_INLINE Floats spread(float x) { return _mm512_set1_ps(x); }
FB_INLINE Floats load(const float* from) { return _mm512_loadu_ps(from); }
FB_INLINE void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
FB_INLINE Floats load_first(const float* from, int n) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), from);
}
FB_INLINE void store_first(float* to, Floats x, int n) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << n) - 1), x);
}
FB_INLINE Floats load_half(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
FB_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
FB_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
FB_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

FB_INLINE Ints zero_ints() { return _mm512_setzero_si512(); }
FB_INLINE Ints spread_int(int32_t x) { return _mm512_set1_epi32(x); }
FB_INLINE Ints load_uint8(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
FB_INLINE Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
// a times b, both of them within 16 bits, a not negative.
FB_INLINE Ints mul_short(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }
FB_INLINE Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
FB_INLINE Floats as_floats(Ints x) { return _mm512_castsi512_ps(x); }
FB_INLINE Ints as_ints(Floats x) { return _mm512_castps_si512(x); }

FB_INLINE Bytes load_bytes(const uint8_t* from) { return _mm512_loadu_si512(from); }
FB_INLINE void store_bytes(uint8_t* to, Bytes x) { _mm512_storeu_si512(to, x); }
// Each byte's bits from `shift` on, those of mask.
FB_INLINE Bytes take_bits(Bytes x, int shift, uint8_t mask) {
    return _mm512_and_si512(_mm512_srli_epi16(x, shift), _mm512_set1_epi8(mask));
}
// Where the bits of x are clear, those of y, moved up by shift, which leaves them within a byte.
FB_INLINE Bytes put_bits(Bytes x, Bytes y, int shift) {
    return _mm512_or_si512(x, _mm512_slli_epi16(y, shift));
}
// Each lane's byte i.
FB_INLINE Ints byte_of_lanes(Bytes x, int i) {
    return _mm512_and_si512(_mm512_srli_epi32(x, 8 * i), _mm512_set1_epi32(255));
}
// The bfloat16 in each lane's low and high half.
FB_INLINE Floats low_bfloat16(Ints x) { return as_floats(_mm512_slli_epi32(x, 16)); }
FB_INLINE Floats high_bfloat16(Ints x) {
    return as_floats(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
FB_INLINE Ints load_ints(const void* from) { return _mm512_loadu_si512(from); }

#if defined(__AVX512VNNI__)

constexpr bool tells_narrow = false;

template <bool is_wide>
struct Sums {
    Ints sums;
    FB_INLINE void start(Ints from) { sums = from; }
    FB_INLINE void add_products(Bytes codes, Ints inputs) {
        sums = _mm512_dpbusd_epi32(sums, codes, inputs);
    }
    FB_INLINE Ints total(Ints) const { return sums; }
};

#else

constexpr bool tells_narrow = true;

// Of eight steps at most: 8 * 2 * 15 * 127 fits into 16 bits.
template <bool is_wide>
struct Sums {
    Ints sums;
    FB_INLINE void start(Ints) { sums = zero_ints(); }
    FB_INLINE void add_products(Bytes codes, Ints inputs) {
        sums = _mm512_add_epi16(sums, _mm512_maddubs_epi16(codes, inputs));
    }
    FB_INLINE Ints total(Ints from) const {
        return _mm512_add_epi32(from, _mm512_madd_epi16(sums, _mm512_set1_epi16(1)));
    }
};

// The two halves of a code by themselves.
template <>
struct Sums<true> {
    Ints low, high;
    FB_INLINE void start(Ints) { low = high = zero_ints(); }
    FB_INLINE void add_products(Bytes codes, Ints inputs) {
        low = _mm512_add_epi16(low, _mm512_maddubs_epi16(take_bits(codes, 0, 15), inputs));
        high = _mm512_add_epi16(high, _mm512_maddubs_epi16(take_bits(codes, 4, 15), inputs));
    }
    FB_INLINE Ints total(Ints from) const {
        const Ints sum = _mm512_add_epi32(from, _mm512_madd_epi16(low, _mm512_set1_epi16(1)));
        return _mm512_add_epi32(sum, _mm512_madd_epi16(high, _mm512_set1_epi16(16)));
    }
};

#endif

#if defined(__AVX512BF16__)
#define FB_HAS_BFLOAT16_DOT 1
// Adds, for each lane, the products of its pair of weights and the pair of inputs.
FB_INLINE Floats add_pair(Floats sum, Ints weights, Ints inputs) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(weights),
                            reinterpret_cast<__m512bh>(inputs));
}
// Sixteen numbers rounded to bfloat16, into 32 bytes.
FB_INLINE void store_bfloat16(uint8_t* to, Floats x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
// Pairs of bfloat16: those of neighbours of x, and behind them those of y.
FB_INLINE Ints pair_neighbours(Floats x, Floats y) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y, x));
}
// Each lane's number of x and of y.
FB_INLINE Ints pair_lanes(Floats x, Floats y) {
    const Ints order = _mm512_or_si512(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
        _mm512_set_epi32(31 << 16, 30 << 16, 29 << 16, 28 << 16, 27 << 16, 26 << 16, 25 << 16,
                         24 << 16, 23 << 16, 22 << 16, 21 << 16, 20 << 16, 19 << 16, 18 << 16,
                         17 << 16, 16 << 16));
    return _mm512_permutexvar_epi16(order, pair_neighbours(x, y));
}
FB_INLINE void store_ints(void* to, Ints x) { _mm512_storeu_si512(to, x); }
#endif

// The largest of the lanes, all of them not negative.
FB_INLINE int32_t largest(Ints x) { return _mm512_reduce_max_epi32(x); }
FB_INLINE Ints max_ints(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
FB_INLINE Ints magnitude_bits(Floats x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
FB_INLINE Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
FB_INLINE int32_t sum_of_ints(Ints x) { return _mm512_reduce_add_epi32(x); }
// Rounded to the nearest, halves to even, and each within eight bits: what is stored.
FB_INLINE Ints store_rounded(int8_t* to, Floats x) {
    const Ints rounded = _mm512_cvtps_epi32(x);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(rounded));
    return rounded;
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
