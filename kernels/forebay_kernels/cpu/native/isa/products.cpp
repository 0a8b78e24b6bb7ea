// The table of one set of instructions.
#include "lanes.h"
#include "products_of_isa.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

void multiply_codes(const Matrix& matrix, const RoundedRows& x, const Part& part,
                    const Destination& to, uint8_t* scratch) {
    switch (matrix.zero_kind) {
        case ZeroKind::middle: return multiply_codes_middle(matrix, x, part, to, scratch);
        case ZeroKind::integers: return multiply_codes_integers(matrix, x, part, to, scratch);
        case ZeroKind::mins: return multiply_codes_mins(matrix, x, part, to, scratch);
    }
}

// A few tiles of unpacked codes.
int64_t codes_scratch_bytes(const Matrix& matrix) {
    return int64_t{512} * matrix.num_blocks() * tiles_at_once;
}

}  // namespace

extern const Products products_table;
const Products products_table{
    round_codes,
    round_bfloat16,
    multiply_codes,
    multiply_floats,
#if defined(FB_HAS_BFLOAT16_DOT)
    multiply_bfloat16,
#else
    nullptr,
#endif
    codes_scratch_bytes,
    floats_scratch_bytes,
    tiles_at_once,
};

}  // namespace FOREBAY_ISA
}  // namespace forebay
