// Sixteen lanes, one for each output of a tile, in the instructions that this source is compiled
// for. Kernels are written over these names alone:
//
//   Floats, Ints     16 of float, of int32
//   Bytes            64: four codes of each output
//   Sums<is_wide>    Ints that grow by dot products of codes and inputs. Codes of more than four
//                    bits are wide: without VNNI the products of narrow ones are added in 16 bits.
//                    They start from `from`, which is given at the start and at the end: where that
//                    is added costs nothing in the one place or in the other.
//
// All have internal linkage: a function that the linker merged with another set's would be run by
// processors that lack its instructions. For the same reason nothing of std is called.
#pragma once

#include <cstdint>

#define FB_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include "lanes_avx512.h"
#elif defined(__AVX2__)
#include "lanes_avx2.h"
#else
#include "lanes_portable.h"
#endif
