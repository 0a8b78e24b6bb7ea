// Products of codes about the middle one.
#include "products_of_isa.h"

#if !defined(__AVX512BF16__)
#include "codes.h"

void forebay::FOREBAY_ISA::multiply_codes_middle(const Matrix& matrix, const RoundedRows& x,
                                                 const Part& part, const Destination& to,
                                                 uint8_t* scratch) {
    multiply_codes<ZeroKind::middle>(matrix, x, part, to, scratch);
}
#endif
