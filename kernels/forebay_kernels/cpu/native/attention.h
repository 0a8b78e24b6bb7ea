// Attention over a paged cache: how it is split, and what each set of instructions does; see isa/.
//
// Keys are taken in tiles of 128 by their positions. A tile gives a query its largest score, the
// sum of its weights and the sum of weighted values, each in one order of additions; tiles are then
// merged in their order. So a query's numbers depend on its own keys alone, and not on who shares
// the batch, on how its prompt was cut, nor on which thread computed what.
#pragma once

#include <cstdint>
#include <vector>

#include "instructions.h"
#include "pool.h"
#include "scratch.h"
#include "step.h"

namespace forebay {

constexpr int tile_keys = 128;
// Rows of a head up to which a tile's keys and values are used as they are read, without scratch.
constexpr int few_rows = 8;
// Of a row's scores: a vector may be written that begins at a tile's last key.
constexpr int scores_stride = tile_keys + 16;

// Queries at consecutive positions of one sequence, by all heads of some KV heads, and the tiles of
// keys that they see. Letters: N tokens, G heads a KV head; a row is a query of one head, and rows
// of a KV head are ordered by token, then head. Several KV heads, which lie side by side in memory,
// only where each has few rows, and the item is whole.
struct AttentionItem {
    const int32_t* block_table;
    int32_t kv_head;  // the first
    int32_t num_kv_heads;
    int32_t first_row;       // of the step's tokens
    int32_t num_tokens;      // N
    int32_t first_position;  // of its first token
    int32_t first_tile;
    int32_t end_tile;
    int32_t split;  // which of the splits it is a part of; -1: it is whole
};

// What is in the cache when a thread begins an item, and what should be when it has ended it.
// is_first: of those that the thread runs, so that nobody has fetched its first tile. next: what
// the thread probably runs then, or null.
struct AttentionTurn {
    bool is_first;
    const AttentionItem* next;
};

// What a tile gave N * G rows: for each its largest score, its sum of weights, and its sum of
// weighted values [head_dim rounded up to 16].
struct AttentionKernels {
    // All tiles of a whole item, into call.out.
    void (*attend)(const Attention& call, const AttentionItem& item, const AttentionTurn& turn,
                   uint8_t* scratch);
    // Each tile of a part of an item, into partials [end_tile - first_tile][N * G][partial_floats].
    void (*attend_part)(const Attention& call, const AttentionItem& item,
                        const AttentionTurn& turn, float* partials, uint8_t* scratch);
    // The whole of an item from what attend_part gave for all of its tiles, into call.out.
    void (*merge)(const Attention& call, const AttentionItem& item, const float* partials);
};

// Whether heads are whole vectors, and so are the halves of those in four bits.
inline bool has_even_heads(const KvCache& cache) {
    return cache.head_dim % (cache.number == Number::int4 ? 32 : 16) == 0;
}

// Whether a KV head has few rows of so many tokens.
inline bool has_few_rows(const Attention& call, int num_tokens) {
    const int num_rows = num_tokens * (call.num_heads / call.cache.num_kv_heads);
    return num_rows <= few_rows && has_even_heads(call.cache);
}

// Of a row of a partial result.
inline int64_t partial_floats(int head_dim) { return (head_dim + 15) / 16 * 16 + 2; }

// What attend needs of memory, for the rows of all of an item's heads.
int64_t attention_scratch_bytes(const Attention& call, int num_rows);

// Those of the instructions in use.
const AttentionKernels& attention_kernels();

// How one step's attention is split among threads: the same for all layers of the same shape.
class AttentionPlan {
  public:
    // Of so many (head group, head_dim, window); built anew when the step or these change.
    void build(const Attention& call, const Step& step, int num_threads);
    void run(const Attention& call, Pool& pool, Scratch& scratch);

  private:
    void add_sequence(const Attention& call, const Step& step, int seq, int64_t unit_cost);
    void add_split(const AttentionItem& whole, int num_rows, int64_t floats_a_row,
                   int tiles_a_part);
    void run_item(const Attention& call, int index, bool is_first, uint8_t* scratch);

    struct Split {
        AttentionItem whole;
        int num_parts;
        int64_t partials;  // where they begin
    };
    std::vector<AttentionItem> items_;
    std::vector<Split> splits_;
    int64_t num_partials_ = 0;  // floats
    float* partials_ = nullptr;
    std::vector<int32_t> num_left_;  // parts of each split that are not done
};

}  // namespace forebay
