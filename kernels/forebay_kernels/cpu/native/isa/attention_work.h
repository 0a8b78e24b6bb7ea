// An item of attention: its sizes, what its rows see, and where its scratch lies.
#pragma once

#include <cstdint>

#include "../attention.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

FB_INLINE int least(int a, int b) { return a < b ? a : b; }
FB_INLINE int most(int a, int b) { return a > b ? a : b; }

// An item's sizes and where its scratch lies.
struct Work {
    const Attention& call;
    const AttentionItem& item;
    int head_dim, group, num_rows;
    int stride;       // head_dim rounded up to vectors
    float* keys;      // [head_dim][tile_keys]
    float* values;    // [tile_keys][stride]
    float* k_scales;  // [tile_keys]
    float* v_scales;  // [tile_keys]
    float* scores;    // [block_rows][tile_keys]
    float* queries;   // [num_rows][stride], times the scale
    float* totals;    // [num_rows][partial_floats]: weighted values, sum of weights, largest score

    Work(const Attention& call_, const AttentionItem& item_, uint8_t* scratch)
        : call(call_), item(item_), head_dim(call_.cache.head_dim) {
        group = call.num_heads / call.cache.num_kv_heads;
        num_rows = item.num_tokens * group;
        stride = (head_dim + 15) / 16 * 16;
        keys = reinterpret_cast<float*>(scratch);
        values = keys + tile_keys * stride;
        k_scales = values + tile_keys * stride;
        v_scales = k_scales + tile_keys;
        scores = v_scales + tile_keys;
        queries = scores + 16 * tile_keys;
        totals = queries + num_rows * stride;
    }
    // Floats of a row of totals, and where in it the sum and the largest lie.
    int total_floats() const { return stride + 2; }

    // Keys of a tile that a row sees: [begin, end), counted from the tile's first.
    int begin_of(int tile, int row) const {
        const int position = item.first_position + row / group;
        const int first = call.window == 0 ? 0 : position - call.window + 1;
        return most(0, least(first - tile * tile_keys, tile_keys));
    }
    int end_of(int tile, int row) const {
        const int position = item.first_position + row / group;
        return most(0, least(position + 1 - tile * tile_keys, tile_keys));
    }
    bool has_scales() const { return call.cache.k_scale != nullptr; }
    const float* query(int row) const {
        const int64_t token = item.first_row + row / group;
        const int64_t head = int64_t{item.kv_head} * group + row % group;
        return call.queries + (token * call.num_heads + head) * head_dim;
    }
    float* out(int row) const { return call.out + (query(row) - call.queries); }
};

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
