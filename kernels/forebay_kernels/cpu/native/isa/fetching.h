// What is fetched from memory while other weights are multiplied.
#pragma once

#include "../matrix.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// How many bytes behind those that are read now lie those to fetch. The same place of the next tiles,
// as long as the second cache holds what is between: that is right at a tile's end, too, and leaves
// memory the time in which all rows are multiplied. Of longer tiles, as far as memory takes to
// answer.
inline int64_t fetched_ahead(const Matrix& matrix) {
    constexpr int64_t most_bytes = 256 * 1024, short_bytes = 8 * 1024;
    const int64_t tiles_bytes = tiles_at_once * matrix.tile_bytes();
    return tiles_bytes <= most_bytes ? tiles_bytes : short_bytes;
}

// How many inputs the nearest cache holds weights of.
constexpr int most_turn_inputs = 256;

// The same within long tiles that few rows are multiplied with: these are taken in turns of about
// equal length, each of which fetches the next one, and the last the first of the next tiles. Then
// only a thread's first turn comes from memory unannounced, and not its first tiles.
struct Turns {
    int num_inputs, turn_inputs;
    int64_t input_bytes, tiles_bytes;

    // most_inputs: of a turn.
    Turns(const Matrix& matrix, int most_inputs)
        : num_inputs(matrix.num_stored), tiles_bytes(tiles_at_once * matrix.tile_bytes()) {
        const int num_turns = (num_inputs + most_inputs - 1) / most_inputs;
        const int each = (num_inputs + num_turns - 1) / num_turns;
        turn_inputs = (each + block_inputs - 1) / block_inputs * block_inputs;
        input_bytes = matrix.tile_bytes() / num_inputs;
    }
    int length(int first) const {
        return num_inputs - first < turn_inputs ? num_inputs - first : turn_inputs;
    }
    int64_t ahead(int first) const {
        const bool is_last = first + turn_inputs >= num_inputs;
        return is_last ? tiles_bytes - first * input_bytes : turn_inputs * input_bytes;
    }
};

// Into the second cache.
FB_INLINE void fetch(const void* from, int64_t ahead) {
    __builtin_prefetch(static_cast<const uint8_t*>(from) + ahead, 0, 2);
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
