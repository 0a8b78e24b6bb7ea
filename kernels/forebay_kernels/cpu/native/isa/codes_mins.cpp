// Products of codes that begin at a number of their groups' own.
#include "products_of_isa.h"

#if !defined(__AVX512BF16__)
#include "codes.h"

void forebay::FOREBAY_ISA::multiply_codes_mins(const Matrix& matrix, const RoundedRows& x,
                                               const Part& part, const Destination& to,
                                               uint8_t* scratch) {
    multiply_codes<ZeroKind::mins>(matrix, x, part, to, scratch);
}
#endif
