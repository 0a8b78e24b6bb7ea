// What is done with a tile's sums of a row: the bias, what was there before, and the way out.
#pragma once

#include "../products.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

FB_INLINE void finish(Floats sum, int row, int tile, int num_outputs, const Destination& to) {
    const int first = tile * tile_outputs;
    const int num = num_outputs - first < tile_outputs ? num_outputs - first : tile_outputs;
    float* out = to.out + row * to.stride + first;
    if (num == tile_outputs) {
        if (to.bias != nullptr) sum = add(sum, load(to.bias + first));
        if (to.adds) sum = add(load(out), sum);
        store(out, sum);
    } else {
        if (to.bias != nullptr) sum = add(sum, load_first(to.bias + first, num));
        if (to.adds) sum = add(load_first(out, num), sum);
        store_first(out, sum, num);
    }
}

// How many rows to take next: all where there is a kernel for so many, else turns of about the same
// size, the best for a kernel, so that the last is not of one row alone.
FB_INLINE int next_rows(int num_left, int best, int most) {
    if (num_left <= most) return num_left;
    const int num_turns = (num_left + best - 1) / best;
    return (num_left + num_turns - 1) / num_turns;
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
