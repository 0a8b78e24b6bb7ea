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

// Where the keys of a tile lie in the cache, in heads from the first. [begin, end): those that are
// seen, counted from the tile's first.
struct TilePlaces {
    const KvCache* cache;
    int begin, end;
    int64_t place[tile_keys];  // of KV head 0

    const uint8_t* key(int index, int head) const {
        return static_cast<const uint8_t*>(cache->k) + (place[index] + head) * cache->head_bytes();
    }
    const uint8_t* value(int index, int head) const {
        return static_cast<const uint8_t*>(cache->v) + (place[index] + head) * cache->head_bytes();
    }
};

// The rows of one of an item's KV heads: their sizes, what they see, and where they come from and
// go to.
struct ItemRows {
    const Attention& call;
    const AttentionItem& item;
    int kv_head, head_dim, group, num_rows;
    int stride;  // head_dim rounded up to vectors

    ItemRows(const Attention& call_, const AttentionItem& item_, int kv_head_)
        : call(call_), item(item_), kv_head(kv_head_), head_dim(call_.cache.head_dim) {
        group = call.num_heads / call.cache.num_kv_heads;
        num_rows = item.num_tokens * group;
        stride = (head_dim + 15) / 16 * 16;
    }
    // Of a row of a result: weighted values, the sum of weights, the largest score.
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
    // Those of a tile that any row sees.
    void find_places(int tile, TilePlaces& places) const {
        const KvCache& cache = call.cache;
        places.cache = &cache;
        places.begin = begin_of(tile, 0);
        places.end = end_of(tile, num_rows - 1);
        const int position = tile * tile_keys + places.begin;
        int index = position / cache.block_size, offset = position % cache.block_size;
        for (int key = places.begin; key < places.end; ++key) {
            const int64_t block = item.block_table[index];
            const int64_t slot = block * cache.block_size + offset;
            places.place[key] = slot * cache.num_kv_heads;
            if (++offset == cache.block_size) {
                offset = 0;
                ++index;
            }
        }
    }
    bool has_scales() const { return call.cache.k_scale != nullptr; }

    const float* query(int row) const {
        const int64_t token = item.first_row + row / group;
        const int64_t head = int64_t{kv_head} * group + row % group;
        return call.queries + (token * call.num_heads + head) * head_dim;
    }
    float* out(int row) const { return call.out + (query(row) - call.queries); }
};

// The same with scratch: of words, of which pairs need half.
struct Work : ItemRows {
    float* keys;      // [stride][tile_keys]
    float* values;    // [tile_keys][stride]
    float* k_scales;  // [tile_keys]
    float* v_scales;  // [tile_keys]
    float* scores;    // [few_rows][scores_stride]
    float* queries;   // [num_rows][stride], times the scale
    float* totals;    // [num_rows][total_floats]

    // The last two are each head's own.
    Work(const Attention& call_, const AttentionItem& item_, int kv_head_, uint8_t* scratch)
        : ItemRows(call_, item_, kv_head_) {
        keys = reinterpret_cast<float*>(scratch);
        values = keys + tile_keys * stride;
        k_scales = values + tile_keys * stride;
        v_scales = k_scales + tile_keys;
        scores = v_scales + tile_keys;
        queries = scores + few_rows * scores_stride +
                  int64_t{kv_head - item.kv_head} * num_rows * (stride + total_floats());
        totals = queries + num_rows * stride;
    }
};

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
