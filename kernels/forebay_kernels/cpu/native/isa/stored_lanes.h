// Sixteen numbers at a time as a cache keeps them, and sixteen rows of sixteen turned.
#pragma once

#include "../kv_cache.h"
#include "lanes.h"
#include "stored_numbers.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// Numbers [i, i + 16) of a head, its scale left out. Of int4, i + 16 is not beyond its half, or i
// is not before.
template <Number number>
FB_INLINE Floats load_stored(const void* head, int size, int i);

#if defined(__AVX512F__)

FB_INLINE __m128i load_16_bytes(const void* head, int i) {
    return _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(head) + i));
}
FB_INLINE Floats widen_bfloat16(const uint16_t* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
FB_INLINE Floats widen_int8(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// As float16, whose exponent has one bit more in front and another middle.
FB_INLINE Floats widen_fp8(__m128i bytes) {
    const __m256i shorts = _mm256_cvtepu8_epi16(bytes);
    const __m256i size = _mm256_slli_epi16(_mm256_and_si256(shorts, _mm256_set1_epi16(0x7f)), 7);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(shorts, _mm256_set1_epi16(0x80)), 8);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(size, sign)), _mm512_set1_ps(256.0f));
}

FB_INLINE Ints low_nibbles(Ints x) { return _mm512_and_si512(x, _mm512_set1_epi32(15)); }
FB_INLINE Ints high_nibbles(Ints x) { return _mm512_srli_epi32(x, 4); }

FB_INLINE void turn(Floats* rows) {
    Floats t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int half = 0; half < 2; ++half) {
            const __m512d even = _mm512_castps_pd(t[i + half]);
            const __m512d odd = _mm512_castps_pd(t[i + half + 2]);
            rows[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(even, odd));
            rows[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd));
        }
    }
    for (int i = 0; i < 4; ++i) {
        const Floats even_a = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0x88);
        const Floats odd_a = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0xdd);
        const Floats even_b = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0x88);
        const Floats odd_b = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0xdd);
        t[i] = _mm512_shuffle_f32x4(even_a, even_b, 0x88);
        t[8 + i] = _mm512_shuffle_f32x4(even_a, even_b, 0xdd);
        t[4 + i] = _mm512_shuffle_f32x4(odd_a, odd_b, 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(odd_a, odd_b, 0xdd);
    }
    for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

#elif defined(__AVX2__)

FB_INLINE __m128i load_16_bytes(const void* head, int i) {
    return _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(head) + i));
}
FB_INLINE __m256 eight_bfloat16(const uint16_t* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
FB_INLINE Floats widen_bfloat16(const uint16_t* from) {
    return {eight_bfloat16(from), eight_bfloat16(from + 8)};
}
FB_INLINE Floats widen_int8(__m128i bytes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
// As float16, whose exponent has one bit more in front and another middle.
FB_INLINE Floats widen_fp8(__m128i bytes) {
    const __m256i shorts = _mm256_cvtepu8_epi16(bytes);
    const __m256i size = _mm256_slli_epi16(_mm256_and_si256(shorts, _mm256_set1_epi16(0x7f)), 7);
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(shorts, _mm256_set1_epi16(0x80)), 8);
    const __m256i halves = _mm256_or_si256(size, sign);
    const __m256 factor = _mm256_set1_ps(256.0f);
    return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor),
            _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), factor)};
}

FB_INLINE Ints low_nibbles(Ints x) {
    const __m256i kept = _mm256_set1_epi32(15);
    return {_mm256_and_si256(x.a, kept), _mm256_and_si256(x.b, kept)};
}
FB_INLINE Ints high_nibbles(Ints x) {
    return {_mm256_srli_epi32(x.a, 4), _mm256_srli_epi32(x.b, 4)};
}

FB_INLINE void turn_8(__m256* rows) {
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int half = 0; half < 2; ++half) {
            const __m256d even = _mm256_castps_pd(t[i + half]);
            const __m256d odd = _mm256_castps_pd(t[i + half + 2]);
            rows[i + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(even, odd));
            rows[i + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd));
        }
    }
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm256_permute2f128_ps(rows[i], rows[4 + i], 0x20);
        t[4 + i] = _mm256_permute2f128_ps(rows[i], rows[4 + i], 0x31);
    }
    for (int i = 0; i < 8; ++i) rows[i] = t[i];
}

// A quarter at a time, as that many registers there are.
FB_INLINE void turn(Floats* rows) {
    Floats turned[16];
    for (int half = 0; half < 2; ++half) {
        __m256 first[8], second[8];
        for (int i = 0; i < 8; ++i) {
            first[i] = rows[8 * half + i].a;
            second[i] = rows[8 * half + i].b;
        }
        turn_8(first);
        turn_8(second);
        for (int i = 0; i < 8; ++i) {
            (half == 0 ? turned[i].a : turned[i].b) = first[i];
            (half == 0 ? turned[8 + i].a : turned[8 + i].b) = second[i];
        }
    }
    for (int i = 0; i < 16; ++i) rows[i] = turned[i];
}

#else

FB_INLINE const uint8_t* load_16_bytes(const void* head, int i) {
    return static_cast<const uint8_t*>(head) + i;
}
FB_INLINE Floats widen_bfloat16(const uint16_t* from) {
    return by_lane<Floats>([&](int i) { return of_bfloat16(from[i]); });
}
FB_INLINE Floats widen_int8(const uint8_t* bytes) {
    return by_lane<Floats>(
        [&](int i) { return static_cast<float>(static_cast<int8_t>(bytes[i])); });
}
FB_INLINE Floats widen_fp8(const uint8_t* bytes) {
    return by_lane<Floats>([&](int i) { return of_fp8(bytes[i]); });
}

FB_INLINE Ints low_nibbles(const Ints& x) {
    return by_lane<Ints>([&](int i) { return x.lane[i] & 15; });
}
FB_INLINE Ints high_nibbles(const Ints& x) {
    return by_lane<Ints>([&](int i) { return x.lane[i] >> 4; });
}

FB_INLINE void turn(Floats* rows) {
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < i; ++j) {
            const float kept = rows[i].lane[j];
            rows[i].lane[j] = rows[j].lane[i];
            rows[j].lane[i] = kept;
        }
    }
}

#endif

template <>
FB_INLINE Floats load_stored<Number::float32>(const void* head, int, int i) {
    return load(static_cast<const float*>(head) + i);
}
template <>
FB_INLINE Floats load_stored<Number::bfloat16>(const void* head, int, int i) {
    return widen_bfloat16(static_cast<const uint16_t*>(head) + i);
}
template <>
FB_INLINE Floats load_stored<Number::float16>(const void* head, int, int i) {
    return load_half(static_cast<const uint16_t*>(head) + i);
}
template <>
FB_INLINE Floats load_stored<Number::fp8>(const void* head, int, int i) {
    return widen_fp8(load_16_bytes(head, i));
}
template <>
FB_INLINE Floats load_stored<Number::int8>(const void* head, int, int i) {
    return widen_int8(load_16_bytes(head, i));
}
template <>
FB_INLINE Floats load_stored<Number::int4>(const void* head, int size, int i) {
    const int half = size / 2;
    const uint8_t* bytes = static_cast<const uint8_t*>(head) + (i < half ? i : i - half);
    const Ints both = load_uint8(bytes);
    const Ints codes = i < half ? low_nibbles(both) : high_nibbles(both);
    return to_floats(subtract(codes, spread_int(8)));
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
