// Products of packed codes with inputs of eight bits: the instance for a matrix, and the way
// through its tiles and rows.
//
// Of few rows, records of four and eight bits are read where they lie, once. Of more, or of other
// numbers of bits, a few tiles are unpacked to bytes that stay in the cache, for all rows.
#pragma once

#include "codes_kernel.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

inline Units units(const Matrix& matrix) {
    const int64_t ahead = fetched_ahead(matrix);
    const int64_t group_bytes = matrix.record_bytes() * matrix.group_size / block_inputs;
    return {matrix.num_units(), matrix.group_size / matrix.unit_inputs(), ahead,
            ahead * 2 * tile_outputs / group_bytes};
}

// One set of tiles, which begins with the first of a part's, by rows from `row` on.
struct TilesCall {
    const Tiles& tiles;
    const Units units;
    const RoundedRows& x;
    const Part& part;
    const Destination& to;
    int num_outputs;
    bool is_plain;  // whole tiles, no bias
};

// Whole tiles without a bias: what most are, and quickest without a look at each.
template <int num_rows>
FB_INLINE void finish_plain(const Floats (&sums)[tiles_at_once][num_rows], float* out,
                            int64_t stride, bool adds) {
#pragma GCC unroll 16
    for (int r = 0; r < num_rows; ++r) {
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            float* to = out + r * stride + t * tile_outputs;
            store(to, adds ? add(load(to), sums[t][r]) : sums[t][r]);
        }
    }
}

template <class V, int num_rows>
inline void multiply_rows(const TilesCall& call, int row) {
    const int first = call.part.first_tile;
    CodesKernel<V, num_rows> kernel;
    kernel.run(call.tiles, call.units, call.x, row, [&](const auto& sums) {
        float* out = call.to.out + row * call.to.stride + first * tile_outputs;
        if (call.is_plain && call.to.adds) return finish_plain(sums, out, call.to.stride, true);
        if (call.is_plain) return finish_plain(sums, out, call.to.stride, false);
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            if (first + t >= call.part.end_tile) return;
#pragma GCC unroll 16
            for (int r = 0; r < num_rows; ++r) {
                finish(sums[t][r], row + r, first + t, call.num_outputs, call.to);
            }
        }
    });
}

using MultiplyRows = void (*)(const TilesCall&, int row);

template <class V>
inline MultiplyRows for_rows(int num_rows) {
    switch (num_rows) {
        case 1: return multiply_rows<V, 1>;
        case 2: return multiply_rows<V, 2>;
        case 3: return multiply_rows<V, most_code_rows < 3 ? 1 : 3>;
        case 4: return multiply_rows<V, most_code_rows < 4 ? 1 : 4>;
        case 5: return multiply_rows<V, most_code_rows < 5 ? 1 : 5>;
        case 6: return multiply_rows<V, most_code_rows < 6 ? 1 : 6>;
        case 7: return multiply_rows<V, most_code_rows < 7 ? 1 : 7>;
        default: return multiply_rows<V, most_code_rows < 8 ? 1 : 8>;
    }
}

// One set of tiles by all of a part's rows.
template <class V>
inline void multiply_tiles(const Matrix& matrix, const Tiles& tiles, const RoundedRows& x,
                           const Part& part, const Destination& to) {
    const int end_tile = part.first_tile + tiles_at_once;
    const bool is_plain = to.bias == nullptr && end_tile <= part.end_tile &&
                          end_tile * tile_outputs <= matrix.num_outputs;
    const TilesCall call = {tiles, units(matrix), x, part, to, matrix.num_outputs, is_plain};
    for (int row = part.first_row; row < part.end_row;) {
        const int num_rows = next_rows(part.end_row - row, code_rows_at_once, most_code_rows);
        for_rows<V>(num_rows)(call, row);
        row += num_rows;
    }
}

using MultiplyTiles = void (*)(const Matrix&, const Tiles&, const RoundedRows&, const Part&,
                               const Destination&);

template <int bits, bool is_wide, ZeroKind zeros>
inline MultiplyTiles variant(const Matrix& matrix) {
    if constexpr (bits == 8) {
        if (matrix.group_size < block_inputs) {
            return multiply_tiles<Variant<bits, is_wide, 4, zeros, false>>;
        }
    }
    if (matrix.group_size == block_inputs) {
        return multiply_tiles<Variant<bits, is_wide, 8, zeros, false>>;
    }
    return multiply_tiles<Variant<bits, is_wide, 8, zeros, true>>;
}

// What reads records where they lie, or ones that were unpacked.
template <ZeroKind zeros>
inline MultiplyTiles choose(const Matrix& matrix, bool reads_packed) {
    if (reads_packed && matrix.bits == 4) return variant<4, false, zeros>(matrix);
    if (tells_narrow && matrix.bits > 4) return variant<8, tells_narrow, zeros>(matrix);
    return variant<8, false, zeros>(matrix);
}

inline bool reads_packed(const Matrix& matrix) {
    return matrix.bits == 8 || (matrix.bits == 4 && matrix.group_size >= block_inputs);
}

inline Tiles take_tiles(const Matrix& matrix, const Part& part, uint8_t* unpacked) {
    Tiles tiles;
    for (int t = 0; t < tiles_at_once; ++t) {
        const int tile = part.first_tile + t < part.end_tile ? part.first_tile + t
                                                             : part.end_tile - 1;
        tiles.codes[t] = matrix.tile(tile);
        tiles.scales[t] = matrix.tile_scales(tile);
        tiles.zeros[t] = matrix.tile_zeros(tile);
        if (unpacked != nullptr) {
            unpack_records(matrix.bits, tiles.codes[t], matrix.num_blocks(), fetched_ahead(matrix), unpacked);
            tiles.codes[t] = unpacked;
            unpacked += int64_t{512} * matrix.num_blocks();
        }
    }
    return tiles;
}

template <ZeroKind zeros>
inline void multiply_codes(const Matrix& matrix, const RoundedRows& x, const Part& part,
                           const Destination& to, uint8_t* scratch) {
    const bool is_packed = reads_packed(matrix);
    const MultiplyTiles multiply = choose<zeros>(matrix, is_packed);
    Part some = part;
    for (int tile = part.first_tile; tile < part.end_tile; tile += tiles_at_once) {
        some.first_tile = tile;
        const Tiles tiles = take_tiles(matrix, some, is_packed ? nullptr : scratch);
        multiply(matrix, tiles, x, some, to);
    }
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
