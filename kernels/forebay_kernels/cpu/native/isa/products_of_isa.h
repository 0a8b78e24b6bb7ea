// The functions of one set of instructions that products.cpp puts into its table.
#pragma once

#include "../products.h"

// The set whose products of codes are the same: they know no bfloat16.
#if defined(__AVX512BF16__)
#define FB_CODES_ISA avx512_vnni
#else
#define FB_CODES_ISA FOREBAY_ISA
#endif

namespace forebay {
namespace FB_CODES_ISA {

void multiply_codes_middle(const Matrix& matrix, const RoundedRows& x, const Part& part,
                           const Destination& to, uint8_t* scratch);
void multiply_codes_integers(const Matrix& matrix, const RoundedRows& x, const Part& part,
                             const Destination& to, uint8_t* scratch);
void multiply_codes_mins(const Matrix& matrix, const RoundedRows& x, const Part& part,
                         const Destination& to, uint8_t* scratch);

}  // namespace FB_CODES_ISA

namespace FOREBAY_ISA {

using FB_CODES_ISA::multiply_codes_integers;
using FB_CODES_ISA::multiply_codes_middle;
using FB_CODES_ISA::multiply_codes_mins;

void round_codes(const Matrix& matrix, const float* x, const RoundedRows& rounded, int row);
void round_bfloat16(const Matrix& matrix, const float* x, uint16_t* rounded);
void multiply_floats(const Matrix& matrix, const float* x, int64_t stride, const Part& part,
                     const Destination& to, uint8_t* scratch);
void multiply_bfloat16(const Matrix& matrix, const uint16_t* x, int64_t stride, const Part& part,
                       const Destination& to);
int64_t floats_scratch_bytes(const Matrix& matrix, int num_rows);

}  // namespace FOREBAY_ISA
}  // namespace forebay
