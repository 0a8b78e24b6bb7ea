// Sixteen lanes as arrays, in what any processor has.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace forebay {
namespace FOREBAY_ISA {
namespace {

struct Floats {
    float lane[16];
};
struct Ints {
    int32_t lane[16];
};
struct Bytes {
    uint8_t byte[64];
};

constexpr int tiles_at_once = 1;
constexpr int code_rows_at_once = 2;
constexpr int most_code_rows = 2;  // some sums wait in memory
constexpr int float_rows_at_once = 2;
constexpr int unrolled_steps = 1;  // to compile in seconds

template <class Result, class Function>
FB_INLINE Result by_lane(Function function) {
    Result result;
    for (int i = 0; i < 16; ++i) result.lane[i] = function(i);
    return result;
}
template <class Function>
FB_INLINE Bytes by_byte(Function function) {
    Bytes result;
    for (int i = 0; i < 64; ++i) result.byte[i] = static_cast<uint8_t>(function(i));
    return result;
}
FB_INLINE float float_of_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
FB_INLINE uint32_t bits_of_float(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

FB_INLINE Floats zero_floats() { return Floats{}; }
FB_INLINE Floats spread(float x) {
    return by_lane<Floats>([&](int) { return x; });
}
FB_INLINE Floats load(const float* from) {
    return by_lane<Floats>([&](int i) { return from[i]; });
}
FB_INLINE void store(float* to, const Floats& x) { std::memcpy(to, x.lane, 64); }
FB_INLINE Floats load_first(const float* from, int n) {
    return by_lane<Floats>([&](int i) { return i < n ? from[i] : 0.0f; });
}
FB_INLINE void store_first(float* to, const Floats& x, int n) {
    for (int i = 0; i < n; ++i) to[i] = x.lane[i];
}
// Of float16: the exponent is moved by a product, which gets the denormal ones right, too.
FB_INLINE float half(uint16_t bits) {
    const float magnitude = float_of_bits((bits & 0x7fffu) << 13) * 0x1p112f;
    return float_of_bits(bits_of_float(magnitude) | (bits & 0x8000u) << 16);
}
FB_INLINE Floats load_half(const uint16_t* from) {
    return by_lane<Floats>([&](int i) { return half(from[i]); });
}
FB_INLINE Floats add(const Floats& a, const Floats& b) {
    return by_lane<Floats>([&](int i) { return a.lane[i] + b.lane[i]; });
}
FB_INLINE Floats mul(const Floats& a, const Floats& b) {
    return by_lane<Floats>([&](int i) { return a.lane[i] * b.lane[i]; });
}
// Rounded twice, where the other sets round once.
FB_INLINE Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return by_lane<Floats>([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}

FB_INLINE Ints zero_ints() { return Ints{}; }
FB_INLINE Ints spread_int(int32_t x) {
    return by_lane<Ints>([&](int) { return x; });
}
FB_INLINE Ints load_uint8(const uint8_t* from) {
    return by_lane<Ints>([&](int i) { return from[i]; });
}
FB_INLINE Ints subtract(const Ints& a, const Ints& b) {
    return by_lane<Ints>([&](int i) { return a.lane[i] - b.lane[i]; });
}
FB_INLINE Ints mul_short(const Ints& a, const Ints& b) {
    return by_lane<Ints>([&](int i) { return a.lane[i] * b.lane[i]; });
}
FB_INLINE Floats to_floats(const Ints& x) {
    return by_lane<Floats>([&](int i) { return static_cast<float>(x.lane[i]); });
}
FB_INLINE Ints load_ints(const void* from) {
    Ints x;
    std::memcpy(x.lane, from, 64);
    return x;
}
FB_INLINE Bytes load_bytes(const uint8_t* from) {
    return by_byte([&](int i) { return from[i]; });
}
FB_INLINE void store_bytes(uint8_t* to, const Bytes& x) { std::memcpy(to, x.byte, 64); }
FB_INLINE Bytes take_bits(const Bytes& x, int shift, uint8_t mask) {
    return by_byte([&](int i) { return (x.byte[i] >> shift) & mask; });
}
FB_INLINE Bytes put_bits(const Bytes& x, const Bytes& y, int shift) {
    return by_byte([&](int i) { return x.byte[i] | y.byte[i] << shift; });
}
FB_INLINE Ints byte_of_lanes(const Bytes& x, int i) {
    return by_lane<Ints>([&](int lane) { return x.byte[4 * lane + i]; });
}
FB_INLINE Floats low_bfloat16(const Ints& x) {
    return by_lane<Floats>(
        [&](int i) { return float_of_bits(static_cast<uint32_t>(x.lane[i]) << 16); });
}
FB_INLINE Floats high_bfloat16(const Ints& x) {
    return by_lane<Floats>(
        [&](int i) { return float_of_bits(static_cast<uint32_t>(x.lane[i]) & 0xffff0000u); });
}

constexpr bool tells_narrow = false;

template <bool is_wide>
struct Sums {
    Ints sums;
    FB_INLINE void start(const Ints& from) { sums = from; }
    FB_INLINE void add_products(const Bytes& codes, const Ints& inputs) {
        int8_t four[4];
        std::memcpy(four, inputs.lane, 4);
        for (int lane = 0; lane < 16; ++lane) {
            for (int i = 0; i < 4; ++i) sums.lane[lane] += codes.byte[4 * lane + i] * four[i];
        }
    }
    FB_INLINE Ints total(const Ints&) const { return sums; }
};

FB_INLINE Ints max_ints(const Ints& a, const Ints& b) {
    return by_lane<Ints>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
FB_INLINE int32_t largest(const Ints& x) {
    int32_t most = 0;
    for (int i = 0; i < 16; ++i) most = x.lane[i] > most ? x.lane[i] : most;
    return most;
}
FB_INLINE Ints magnitude_bits(const Floats& x) {
    return by_lane<Ints>(
        [&](int i) { return static_cast<int32_t>(bits_of_float(x.lane[i]) & 0x7fffffffu); });
}
// To the nearest, halves to even; what is within 127 loses its fraction beside 1.5 * 2 ** 23.
FB_INLINE int32_t rounded(float x) {
    return static_cast<int32_t>(bits_of_float(x + 0x1.8p23f) - bits_of_float(0x1.8p23f));
}
FB_INLINE Ints add_ints(const Ints& a, const Ints& b) {
    return by_lane<Ints>([&](int i) { return a.lane[i] + b.lane[i]; });
}
FB_INLINE Ints store_rounded(int8_t* to, const Floats& x) {
    const Ints all = by_lane<Ints>([&](int i) { return rounded(x.lane[i]); });
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(all.lane[i]);
    return all;
}
FB_INLINE int32_t sum_of_ints(const Ints& x) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += x.lane[i];
    return sum;
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
