// What attention multiplies: float32, or pairs of bfloat16 where the processor has dot products of
// them. A word is 32 bits of either, and 16 words are a vector.
//
// Sums are float32 in both. A query's pairs are of neighbouring numbers of its head, a weight's and
// a value's of neighbouring keys, so that each pair is the same one in whatever company.
#pragma once

#include <cstring>

#include "../attention.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

struct Singles {
    static constexpr int depth = 1;  // numbers a word
    using Words = Floats;

    static FB_INLINE Words as_words(Floats x) { return x; }
    static FB_INLINE Words load_words(const float* from) { return load(from); }
    static FB_INLINE Words spread_word(const float* from) { return spread(*from); }
    static FB_INLINE Floats add_products(Floats sum, Words left, Words right) {
        return fma(left, right, sum);
    }
    static FB_INLINE void store_words(float* to, Words x) { store(to, x); }
    // Sixteen numbers as words of a row whose number i is the first of them.
    static FB_INLINE void store_numbers(float* row, int i, Floats x) { store(row + i, x); }
};

#if defined(FB_HAS_BFLOAT16_DOT)

struct Pairs {
    static constexpr int depth = 2;
    using Words = Ints;

    static FB_INLINE Words as_words(Floats x) { return as_ints(x); }
    static FB_INLINE Words load_words(const float* from) { return load_ints(from); }
    static FB_INLINE Words spread_word(const float* from) {
        int32_t word;
        std::memcpy(&word, from, 4);
        return spread_int(word);
    }
    static FB_INLINE Floats add_products(Floats sum, Words left, Words right) {
        return add_pair(sum, right, left);
    }
    static FB_INLINE void store_words(float* to, Words x) { store_ints(to, x); }
    static FB_INLINE void store_numbers(float* row, int i, Floats x) {
        store_bfloat16(reinterpret_cast<uint8_t*>(row) + 2 * i, x);
    }
};

// Pairs round what is multiplied, which a cache of float32 does not ask for.
FB_INLINE bool takes_pairs(const Attention& call) {
    return call.input_form == InputForm::rounded && call.cache.number != Number::float32 &&
           has_even_heads(call.cache);
}

#endif

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
