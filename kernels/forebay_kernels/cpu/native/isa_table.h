// Chooses among the tables that sources in isa/ give, one for each set of instructions.
#pragma once

#include "isa.h"

#ifdef FOREBAY_HAS_AVX2
#define FB_WITH_AVX2(code) code
#else
#define FB_WITH_AVX2(code)
#endif
#ifdef FOREBAY_HAS_AVX512
#define FB_WITH_AVX512(code) code
#else
#define FB_WITH_AVX512(code)
#endif
#ifdef FOREBAY_HAS_AVX512_VNNI
#define FB_WITH_AVX512_VNNI(code) code
#else
#define FB_WITH_AVX512_VNNI(code)
#endif
#ifdef FOREBAY_HAS_AVX512_BF16
#define FB_WITH_AVX512_BF16(code) code
#else
#define FB_WITH_AVX512_BF16(code)
#endif

// Defines `const Type& name()`: the Type called `name##_table` in the namespace of the set in use.
// Stands in namespace forebay.
#define FB_CHOOSE_TABLE(Type, name)                                                            \
    namespace portable {                                                                       \
    extern const Type name##_table;                                                            \
    }                                                                                          \
    FB_WITH_AVX2(namespace avx2 { extern const Type name##_table; })                           \
    FB_WITH_AVX512(namespace avx512 { extern const Type name##_table; })                       \
    FB_WITH_AVX512_VNNI(namespace avx512_vnni { extern const Type name##_table; })             \
    FB_WITH_AVX512_BF16(namespace avx512_bf16 { extern const Type name##_table; })             \
    const Type& name() {                                                                       \
        switch (isa()) {                                                                       \
            FB_WITH_AVX2(case Isa::avx2 : return avx2::name##_table;)                          \
            FB_WITH_AVX512(case Isa::avx512 : return avx512::name##_table;)                    \
            FB_WITH_AVX512_VNNI(case Isa::avx512_vnni : return avx512_vnni::name##_table;)     \
            FB_WITH_AVX512_BF16(case Isa::avx512_bf16 : return avx512_bf16::name##_table;)     \
            default: return portable::name##_table;                                            \
        }                                                                                      \
    }
