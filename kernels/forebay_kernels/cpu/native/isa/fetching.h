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

// Into the second cache.
FB_INLINE void fetch(const void* from, int64_t ahead) {
    __builtin_prefetch(static_cast<const uint8_t*>(from) + ahead, 0, 2);
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
