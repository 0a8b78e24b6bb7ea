// One item of attention: a tile of keys is read and converted once, and used by all of its queries.
//
// Keys of a tile are turned to [head_dim][tile_keys], so that a score is one sum over head_dim in
// order, sixteen keys at a time; values lie as [tile_keys][stride], and a weighted sum is one over
// keys in order. Both products are the same few rows by vectors, whose number changes no result.
#include "../attention.h"

#include "attention_work.h"
#include "exp_lanes.h"
#include "functions.h"
#include "key_tiles.h"
#include "lanes.h"
#include "small_product.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

constexpr float unseen = -0x1p127f;

// What stands before the exp: scores [begin, end) of a row, of which it sees [first, last).
FB_INLINE void prepare_scores(const Work& work, float* scores, int begin, int end, int first,
                              int last) {
    if (work.has_scales()) {
        for (int i = begin; i < end; ++i) scores[i] *= work.k_scales[i];
    }
    if (work.call.softcap > 0.0f) {
        const float cap = work.call.softcap, inverse = 1.0f / cap;
        for (int i = begin; i < end; ++i) scores[i] = cap * tanh_of(scores[i] * inverse);
    }
    for (int i = begin; i < first; ++i) scores[i] = -__builtin_inff();
    for (int i = last; i < end; ++i) scores[i] = -__builtin_inff();
}

// Scores [begin, end) of a row, of which it sees [first, last), become weights; those of keys that
// are quantised, times the scale of the value. begin and end are multiples of 16.
void weigh(const Work& work, float* scores, int begin, int end, int first, int last, float* sum,
           float* largest) {
    prepare_scores(work, scores, begin, end, first, last);
    Floats tops = spread(unseen);
    for (int i = begin; i < end; i += 16) tops = larger(tops, load(scores + i));
    *largest = largest_lane(tops);
    const Floats down = spread(-*largest);
    Floats sums = zero_floats();
    for (int i = begin; i < end; i += 16) {
        const Floats weights = exp_lanes(add(load(scores + i), down));
        store(scores + i, weights);
        sums = add(sums, weights);
    }
    *sum = sum_of_lanes(sums);
    if (work.has_scales()) {
        for (int i = begin; i < end; ++i) scores[i] *= work.v_scales[i];
    }
}

// part and total [stride + 2]: weighted values, sum of weights, largest score.
FB_INLINE void add_part(const float* part, int stride, float* total) {
    const float top = part[stride + 1] > total[stride + 1] ? part[stride + 1] : total[stride + 1];
    const float old_share = exp_of(total[stride + 1] - top);
    const float new_share = exp_of(part[stride + 1] - top);
    for (int i = 0; i <= stride; ++i) total[i] = total[i] * old_share + part[i] * new_share;
    total[stride + 1] = top;
}

FB_INLINE void clear_total(const Work& work, int row, float* total) {
    for (int i = 0; i <= work.stride; ++i) total[i] = 0.0f;
    total[work.stride + 1] = unseen;
    if (work.call.sinks != nullptr) {
        total[work.stride] = 1.0f;
        total[work.stride + 1] = work.call.sinks[work.item.kv_head * work.group + row % work.group];
    }
}

FB_INLINE void write_out(const Work& work, int row, const float* total) {
    float* out = work.out(row);
    const float inverse = 1.0f / total[work.stride];
    for (int i = 0; i < work.head_dim; ++i) out[i] = total[i] * inverse;
}

void scale_queries(const Work& work) {
    for (int row = 0; row < work.num_rows; ++row) {
        const float* from = work.query(row);
        float* to = work.queries + row * work.stride;
        for (int i = 0; i < work.head_dim; ++i) to[i] = from[i] * work.call.scale;
    }
}

// What a tile gives rows [row, row + num_rows), at most block_rows: parts [num_rows][stride + 2].
// Sums of 0 are those of rows that see none of its keys.
void attend_block(const Work& work, int tile, int row, int num_rows, float* parts) {
    const int last_row = row + num_rows - 1, floats = work.total_floats();
    const int first = work.begin_of(tile, row), last = work.end_of(tile, last_row);
    for (int i = 0; i < num_rows; ++i) parts[i * floats + work.stride] = 0.0f;
    if (first >= last) return;
    const int begin = first / 16 * 16, end = (last + 15) / 16 * 16;
    multiply_rows({work.queries + row * work.stride, work.stride, work.keys, tile_keys, 0,
                   work.head_dim, work.scores, tile_keys},
                  num_rows, begin, end);
    float sums[block_rows], tops[block_rows];
    for (int i = 0; i < num_rows; ++i) {
        weigh(work, work.scores + i * tile_keys, begin, end, work.begin_of(tile, row + i),
              work.end_of(tile, row + i), &sums[i], &tops[i]);
    }
    multiply_rows({work.scores, tile_keys, work.values, work.stride, first, last, parts, floats},
                  num_rows, 0, work.stride);
    for (int i = 0; i < num_rows; ++i) {
        parts[i * floats + work.stride] = sums[i];
        parts[i * floats + work.stride + 1] = tops[i];
    }
}

void read_tile_of_all(const Work& work, int tile) {
    const int first = work.begin_of(tile, 0), last = work.end_of(tile, work.num_rows - 1);
    if (first < last) read_tile(work, tile, first / 16 * 16, last);
}

void attend_part(const Attention& call, const AttentionItem& item, float* partials,
                 uint8_t* scratch) {
    const Work work(call, item, scratch);
    scale_queries(work);
    for (int tile = item.first_tile; tile < item.end_tile; ++tile) {
        read_tile_of_all(work, tile);
        for (int row = 0; row < work.num_rows; row += block_rows) {
            attend_block(work, tile, row, least(block_rows, work.num_rows - row),
                         partials + row * work.total_floats());
        }
        partials += work.num_rows * work.total_floats();
    }
}

void merge(const Attention& call, const AttentionItem& item, const float* partials) {
    const Work work(call, item, nullptr);
    const int floats = work.total_floats();
    float total[max_head_dim + 2];
    for (int row = 0; row < work.num_rows; ++row) {
        clear_total(work, row, total);
        for (int tile = item.first_tile; tile < item.end_tile; ++tile) {
            const int64_t index = int64_t{tile - item.first_tile} * work.num_rows + row;
            const float* part = partials + index * floats;
            if (part[work.stride] != 0.0f) add_part(part, work.stride, total);
        }
        write_out(work, row, total);
    }
}

void attend(const Attention& call, const AttentionItem& item, uint8_t* scratch) {
    const Work work(call, item, scratch);
    const int floats = work.total_floats();
    float parts[block_rows * (max_head_dim + 2)];
    scale_queries(work);
    for (int row = 0; row < work.num_rows; ++row) clear_total(work, row, work.totals + row * floats);
    for (int tile = item.first_tile; tile < item.end_tile; ++tile) {
        read_tile_of_all(work, tile);
        for (int row = 0; row < work.num_rows; row += block_rows) {
            const int num_rows = least(block_rows, work.num_rows - row);
            attend_block(work, tile, row, num_rows, parts);
            for (int i = 0; i < num_rows; ++i) {
                const float* part = parts + i * floats;
                if (part[work.stride] == 0.0f) continue;
                add_part(part, work.stride, work.totals + (row + i) * floats);
            }
        }
    }
    for (int row = 0; row < work.num_rows; ++row) {
        write_out(work, row, work.totals + row * floats);
    }
}

}  // namespace

extern const AttentionKernels attention_kernels_table;
const AttentionKernels attention_kernels_table = {attend, attend_part, merge};

}  // namespace FOREBAY_ISA
}  // namespace forebay
