#include "attention.h"

#include <cstring>

#include "isa_table.h"

namespace forebay {
namespace {

// Rows of an item at most, unless one token has more: enough for a tile's keys to be converted for.
constexpr int most_rows = 192;
// Items that each thread should find, so that none waits long for the last.
constexpr int items_a_thread = 4;
// Bytes of a tile's keys and values at most that an item of several heads reads, as these and the
// next tile's are to stay in the second cache.
constexpr int64_t most_tile_bytes = 128 * 1024;
// Floats of partial results at most; sequences that would need more are not split.
constexpr int64_t most_partial_floats = 1 << 20;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int least(int a, int b) { return a < b ? a : b; }

int group_size(const Attention& call) { return call.num_heads / call.cache.num_kv_heads; }

// The first key that a query at a position sees.
int first_key(const Attention& call, int position) {
    return call.window == 0 || position < call.window ? 0 : position - call.window + 1;
}

// Keys by queries of a whole sequence's step: what its cost grows with.
int64_t sequence_cost(const Attention& call, int query_len, int seq_len) {
    int64_t keys = seq_len - query_len / 2;
    if (call.window > 0 && keys > call.window) keys = call.window;
    return keys * query_len * call.cache.num_kv_heads;
}

// How many KV heads of so many tokens by so many keys an item takes: what lies side by side is read
// best together, but each thread should find some items.
int heads_at_once(const Attention& call, int num_tokens, int64_t num_keys, int64_t unit_cost) {
    if (!has_few_rows(call, num_tokens)) return 1;
    int heads = call.cache.num_kv_heads;
    const int64_t by_bytes = most_tile_bytes / (2 * tile_keys * call.cache.head_bytes());
    if (heads > by_bytes) heads = static_cast<int>(by_bytes);
    const int64_t by_cost = 2 * unit_cost / (num_keys * num_tokens);
    if (heads > by_cost) heads = static_cast<int>(by_cost);
    return heads < 1 ? 1 : heads;
}

}  // namespace

FB_CHOOSE_TABLE(AttentionKernels, attention_kernels)

int64_t attention_scratch_bytes(const Attention& call, int num_rows) {
    const int64_t size = (call.cache.head_dim + 15) / 16 * 16;
    const int64_t tile = 2 * tile_keys * size + 2 * tile_keys;
    const int64_t scores = few_rows * scores_stride;
    return 4 * (tile + scores + num_rows * (2 * size + 2));
}

void AttentionPlan::build(const Attention& call, const Step& step, int num_threads) {
    items_.clear();
    splits_.clear();
    num_partials_ = 0;
    int64_t cost = 0;
    for (int seq = 0; seq < step.num_seqs; ++seq) {
        const int query_len = step.query_starts[seq + 1] - step.query_starts[seq];
        cost += sequence_cost(call, query_len, step.seq_lens[seq]);
    }
    const int64_t unit_cost = num_threads == 1 ? cost : cost / (num_threads * items_a_thread);
    // Those with many queries stand last in a step, and are best begun first.
    for (int seq = step.num_seqs - 1; seq >= 0; --seq) add_sequence(call, step, seq, unit_cost);
    num_left_.resize(splits_.size());
}

void AttentionPlan::add_sequence(const Attention& call, const Step& step, int seq,
                                 int64_t unit_cost) {
    const int first_row = step.query_starts[seq];
    const int query_len = step.query_starts[seq + 1] - first_row;
    const int seq_len = step.seq_lens[seq], group = group_size(call);
    if (query_len == 0) return;
    int64_t tokens = most_rows / group;
    if (tokens * seq_len > unit_cost) tokens = unit_cost / seq_len;
    const int least_tokens = least(query_len, (15 + group) / group);
    if (tokens < least_tokens) tokens = least_tokens;
    for (int end = query_len; end > 0; end -= static_cast<int>(tokens)) {
        const int start = end > tokens ? end - static_cast<int>(tokens) : 0;
        const int position = seq_len - query_len + start;
        AttentionItem item;
        item.block_table = step.block_tables + int64_t{seq} * step.block_table_stride;
        item.first_row = first_row + start;
        item.num_tokens = end - start;
        item.first_position = position;
        item.first_tile = first_key(call, position) / tile_keys;
        item.end_tile = static_cast<int>(ceil_div(position + item.num_tokens, tile_keys));
        item.split = -1;
        const int64_t tile_cost = int64_t{tile_keys} * item.num_tokens;
        const int64_t tiles = unit_cost / tile_cost < 1 ? 1 : unit_cost / tile_cost;
        const int64_t num_rows = int64_t{item.num_tokens} * group;
        const int num_keys = position + item.num_tokens - first_key(call, position);
        const int heads = heads_at_once(call, item.num_tokens, num_keys, unit_cost);
        for (int head = 0; head < call.cache.num_kv_heads; head += heads) {
            item.kv_head = head;
            item.num_kv_heads = least(heads, call.cache.num_kv_heads - head);
            add_split(item, static_cast<int>(num_rows), partial_floats(call.cache.head_dim),
                      static_cast<int>(tiles));
        }
    }
}

void AttentionPlan::add_split(const AttentionItem& whole, int num_rows, int64_t floats_a_row,
                              int tiles_a_part) {
    const int num_tiles = whole.end_tile - whole.first_tile;
    const int64_t num_floats = num_tiles * num_rows * floats_a_row;
    const bool is_whole = tiles_a_part >= num_tiles || whole.num_kv_heads > 1;
    if (is_whole || num_partials_ + num_floats > most_partial_floats) {
        items_.push_back(whole);
        return;
    }
    AttentionItem part = whole;
    part.split = static_cast<int>(splits_.size());
    int num_parts = 0;
    for (int tile = whole.first_tile; tile < whole.end_tile; tile += tiles_a_part, ++num_parts) {
        part.first_tile = tile;
        part.end_tile = least(tile + tiles_a_part, whole.end_tile);
        items_.push_back(part);
    }
    splits_.push_back({whole, num_parts, num_partials_});
    num_partials_ += num_floats;
}

void AttentionPlan::run(const Attention& call, Pool& pool, Scratch& scratch) {
    for (size_t split = 0; split < splits_.size(); ++split) {
        num_left_[split] = splits_[split].num_parts;
    }
    partials_ = reinterpret_cast<float*>(scratch.shared().take(4 * num_partials_));
    int64_t most_bytes = 0;
    for (const AttentionItem& item : items_) {
        const int num_rows = item.num_tokens * group_size(call) * item.num_kv_heads;
        const int64_t bytes = attention_scratch_bytes(call, num_rows);
        if (bytes > most_bytes) most_bytes = bytes;
    }
    const int num_items = static_cast<int>(items_.size());
    pool.run(num_items, [&](int index, int thread) {
        const bool is_first = index == pool.begin_of_share(num_items, thread);
        run_item(call, index, is_first, scratch.of_thread(thread).take(most_bytes));
    });
}

void AttentionPlan::run_item(const Attention& call, int index, bool is_first, uint8_t* scratch) {
    const AttentionKernels& with = attention_kernels();
    const AttentionItem& item = items_[index];
    const size_t after = static_cast<size_t>(index) + 1;
    const AttentionTurn turn = {is_first, after < items_.size() ? &items_[after] : nullptr};
    if (item.split < 0) {
        with.attend(call, item, turn, scratch);
        return;
    }
    const Split& split = splits_[item.split];
    float* partials = partials_ + split.partials;
    const int64_t num_rows = int64_t{item.num_tokens} * group_size(call);
    const int64_t tile_floats = num_rows * partial_floats(call.cache.head_dim);
    const int tiles_before = item.first_tile - split.whole.first_tile;
    with.attend_part(call, item, turn, partials + tiles_before * tile_floats, scratch);
    // Whoever is the last to end sees what all others have written.
    if (__atomic_sub_fetch(&num_left_[item.split], 1, __ATOMIC_ACQ_REL) == 0) {
        with.merge(call, split.whole, partials);
    }
}

}  // namespace forebay
