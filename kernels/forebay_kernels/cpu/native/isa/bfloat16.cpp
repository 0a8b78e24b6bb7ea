// Products of bfloat16 with inputs rounded to it, by instructions that add pairs of products.
#include "fetching.h"
#include "finishing.h"
#include "products_of_isa.h"

namespace forebay {
namespace FOREBAY_ISA {

#if defined(FB_HAS_BFLOAT16_DOT)

namespace {

constexpr int pair_bytes = 64;

struct Pairs {
    const uint8_t* weights[tiles_at_once];  // of each tile [pairs][16][2]
    Turns turns;
    int64_t ahead;  // of many rows
};

FB_INLINE Ints spread_pair(const uint16_t* from) {
    int32_t pair;
    __builtin_memcpy(&pair, from, 4);
    return spread_int(pair);
}

template <int num_rows>
inline void multiply_rows(const Matrix& matrix, const Pairs& pairs, const uint16_t* x,
                          int64_t stride, int row, const Part& part, const Destination& to) {
    Floats sum[num_rows][tiles_at_once];
    for (auto& of_row : sum) {
        for (auto& of_tile : of_row) of_tile = zero_floats();
    }
    const bool is_few = part.end_row - part.first_row == num_rows;
    for (int first = 0; first < pairs.turns.num_inputs; first += pairs.turns.turn_inputs) {
        const int64_t ahead = is_few ? pairs.turns.ahead(first) : pairs.ahead;
        const int end = (first + pairs.turns.length(first) + 1) / 2;
        for (int pair = first / 2; pair < end; ++pair) {
            Ints weights[tiles_at_once];
#pragma GCC unroll 2
            for (int t = 0; t < tiles_at_once; ++t) {
                const uint8_t* from = pairs.weights[t] + int64_t{pair} * pair_bytes;
                fetch(from, ahead);
                weights[t] = load_ints(from);
            }
#pragma GCC unroll 16
            for (int r = 0; r < num_rows; ++r) {
                const Ints inputs = spread_pair(x + r * stride + 2 * pair);
#pragma GCC unroll 2
                for (int t = 0; t < tiles_at_once; ++t) {
                    sum[r][t] = add_pair(sum[r][t], weights[t], inputs);
                }
            }
        }
    }
    for (int r = 0; r < num_rows; ++r) {
        for (int t = 0; t < tiles_at_once && part.first_tile + t < part.end_tile; ++t) {
            finish(sum[r][t], row + r, part.first_tile + t, matrix.num_outputs, to);
        }
    }
}

using MultiplyRows = void (*)(const Matrix&, const Pairs&, const uint16_t*, int64_t, int,
                              const Part&, const Destination&);

constexpr MultiplyRows for_rows[] = {
    nullptr,          multiply_rows<1>, multiply_rows<2>,  multiply_rows<3>,  multiply_rows<4>,
    multiply_rows<5>, multiply_rows<6>, multiply_rows<7>,  multiply_rows<8>,  multiply_rows<9>,
    multiply_rows<10>, multiply_rows<11>, multiply_rows<12>};

}  // namespace

void multiply_bfloat16(const Matrix& matrix, const uint16_t* x, int64_t stride, const Part& part,
                       const Destination& to) {
    Part some = part;
    for (int tile = part.first_tile; tile < part.end_tile; tile += tiles_at_once) {
        some.first_tile = tile;
        Pairs pairs{{}, Turns(matrix, most_turn_inputs), fetched_ahead(matrix)};
        for (int t = 0; t < tiles_at_once; ++t) {
            pairs.weights[t] = matrix.tile(tile + t < part.end_tile ? tile + t : tile);
        }
        for (int row = part.first_row; row < part.end_row;) {
            const int num_rows = next_rows(part.end_row - row, float_rows_at_once, float_rows_at_once);
            for_rows[num_rows](matrix, pairs, x + row * stride, stride, row, some, to);
            row += num_rows;
        }
    }
}

#endif

}  // namespace FOREBAY_ISA
}  // namespace forebay
