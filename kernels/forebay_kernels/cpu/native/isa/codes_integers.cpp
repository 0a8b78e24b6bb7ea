// Products of codes about zeros of their groups' own.
#include "products_of_isa.h"

#if !defined(__AVX512BF16__)
#include "codes.h"

void forebay::FOREBAY_ISA::multiply_codes_integers(const Matrix& matrix, const RoundedRows& x,
                                                   const Part& part, const Destination& to,
                                                   uint8_t* scratch) {
    multiply_codes<ZeroKind::integers>(matrix, x, part, to, scratch);
}
#endif
