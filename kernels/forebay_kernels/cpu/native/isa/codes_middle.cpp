// Products of codes about the middle one.
#include "codes.h"
#include "products_of_isa.h"

void forebay::FOREBAY_ISA::multiply_codes_middle(const Matrix& matrix, const RoundedRows& x,
                                                 const Part& part, const Destination& to,
                                                 uint8_t* scratch) {
    multiply_codes<ZeroKind::middle>(matrix, x, part, to, scratch);
}
