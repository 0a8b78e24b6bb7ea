// One item of attention: a tile of keys is read and converted once, and used by all of its queries.
//
// Keys of a tile are turned to [head_dim][tile_keys], so that a score is one sum over head_dim in
// order, sixteen keys at a time; values lie as [tile_keys][stride], and a weighted sum is one over
// keys in order. Both products are the same few rows by vectors, whose number changes no result. Of
// pairs, two numbers of a head and two keys are one; see attention_form.h.
#include "../attention.h"

#include "attention_form.h"
#include "attention_work.h"
#include "exp_lanes.h"
#include "few_rows.h"
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
    // What is written behind the end is no row's; see scores_stride.
    for (int i = last; i < end; i += 16) store(scores + i, spread(-__builtin_inff()));
}

// Scores [begin, end) of a row, of which it sees [first, last), become weights; those of keys that
// are quantised, times the scale of the value. begin and end are multiples of 16. Where weights are
// pairs, they lie closer than the scores did, which were read before.
template <class Form>
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
        sums = add(sums, weights);
        Form::store_numbers(scores, i,
                            work.has_scales() ? mul(weights, load(work.v_scales + i)) : weights);
    }
    *sum = sum_of_lanes(sums);
}

// part and total [stride + 2]: weighted values, sum of weights, largest score.
FB_INLINE void add_part(const float* part, int stride, float* total) {
    const float old_top = total[stride + 1], new_top = part[stride + 1];
    if (old_top == unseen) {  // nothing was added yet
        for (int i = 0; i < stride; i += 16) store(total + i, load(part + i));
        total[stride] = part[stride];
        total[stride + 1] = new_top;
        return;
    }
    const bool is_larger = new_top > old_top;
    const float share = exp_of(is_larger ? old_top - new_top : new_top - old_top);
    const float old_share = is_larger ? share : 1.0f, new_share = is_larger ? 1.0f : share;
    const Floats old_shares = spread(old_share), new_shares = spread(new_share);
    for (int i = 0; i < stride; i += 16) {
        store(total + i, add(mul(load(total + i), old_shares), mul(load(part + i), new_shares)));
    }
    total[stride] = total[stride] * old_share + part[stride] * new_share;
    total[stride + 1] = is_larger ? new_top : old_top;
}

FB_INLINE void clear_total(const ItemRows& rows, int row, float* total) {
    for (int i = 0; i <= rows.stride; ++i) total[i] = 0.0f;
    total[rows.stride + 1] = unseen;
    if (rows.call.sinks != nullptr) {
        total[rows.stride] = 1.0f;
        total[rows.stride + 1] = rows.call.sinks[rows.kv_head * rows.group + row % rows.group];
    }
}

FB_INLINE void write_out(const ItemRows& rows, int row, const float* total) {
    float* out = rows.out(row);
    const float inverse = 1.0f / total[rows.stride];
    for (int i = 0; i < rows.head_dim; ++i) out[i] = total[i] * inverse;
}

template <class Form>
FB_INLINE void scale_query(const Work& work, int row) {
    const float* from = work.query(row);
    float* to = work.queries + row * work.stride;
    const Floats scale = spread(work.call.scale);
    int i = 0;
    for (; i + 16 <= work.head_dim; i += 16) Form::store_numbers(to, i, mul(load(from + i), scale));
    for (; i < work.head_dim; ++i) to[i] = from[i] * work.call.scale;
}

// The weights of rows [row, row + num_rows), and what of them goes into parts [num_rows].
template <class Form>
void weigh_rows(const Work& work, int tile, int row, int num_rows, int begin, int end,
                float* parts) {
    for (int i = 0; i < num_rows; ++i) {
        float* sums = parts + i * work.total_floats() + work.stride;
        weigh<Form>(work, work.scores + i * scores_stride, begin, end, work.begin_of(tile, row + i),
              work.end_of(tile, row + i), &sums[0], &sums[1]);
    }
}

// What a tile in scratch gives rows [row, row + num_rows), at most block_rows: parts [num_rows]
// [stride + 2]. Sums of 0 are those of rows that see none of its keys.
template <class Form>
void attend_block(const Work& work, int tile, int row, int num_rows, float* parts) {
    const int floats = work.total_floats();
    const int first = work.begin_of(tile, row), last = work.end_of(tile, row + num_rows - 1);
    for (int i = 0; i < num_rows; ++i) parts[i * floats + work.stride] = 0.0f;
    if (first >= last) return;
    const int begin = first / 16 * 16, end = (last + 15) / 16 * 16;
    constexpr int depth = Form::depth;
    multiply_rows<Form>({work.queries + row * work.stride, work.stride, work.keys, tile_keys, 0,
                         work.head_dim / depth, work.scores, scores_stride},
                        num_rows, begin, end);
    weigh_rows<Form>(work, tile, row, num_rows, begin, end, parts);
    multiply_rows<Form>({work.scores, scores_stride, work.values, work.stride, first / depth,
                         (last + depth - 1) / depth, parts, floats},
                        num_rows, 0, work.stride);
}

// What a tile gives all rows, which are few.
template <class Form>
void attend_few(const Work& work, int tile, const TilePlaces& places, KeyStream& stream,
                float* parts) {
    const FewRows with = few_rows_of<Form>(work);
    for (int i = 0; i < work.num_rows; ++i) parts[i * work.total_floats() + work.stride] = 0.0f;
    if (places.begin >= places.end) return;
    with.score(work, places, stream);
    weigh_rows<Form>(work, tile, 0, work.num_rows, places.begin / 16 * 16, (places.end + 15) / 16 * 16,
               parts);
    with.sum(work, places, stream, parts);
}

// Calls use(work, row, num_rows, parts) for what each of an item's tiles gives each block of rows of
// each of its heads.
template <class Form, class Use>
FB_INLINE void attend_tiles(const Attention& call, const AttentionItem& item,
                            const AttentionTurn& turn, uint8_t* scratch, const Use& use) {
    float parts[few_rows * (max_head_dim + 2)];
    static_assert(block_rows <= few_rows);
    const bool is_few = has_few_rows(call, item.num_tokens);
    const int end_head = item.kv_head + item.num_kv_heads;
    KeyStream stream(call, item, turn);
    TilePlaces places;
    for (int tile = item.first_tile; tile < item.end_tile; ++tile) {
        ItemRows(call, item, item.kv_head).find_places(tile, places);
        for (int head = item.kv_head; head < end_head; ++head) {
            const Work work(call, item, head, scratch);
            read_scales(work, places);
            if (is_few) {
                attend_few<Form>(work, tile, places, stream, parts);
                use(work, 0, work.num_rows, parts);
                continue;
            }
            read_tile<Form>(work, places);
            for (int row = 0; row < work.num_rows; row += block_rows) {
                const int num_rows = least(block_rows, work.num_rows - row);
                attend_block<Form>(work, tile, row, num_rows, parts);
                use(work, row, num_rows, parts);
            }
        }
    }
}

template <class Form>
void attend_part_by(const Attention& call, const AttentionItem& item, const AttentionTurn& turn,
                 float* partials, uint8_t* scratch) {
    const Work of_item(call, item, item.kv_head, scratch);
    const int floats = of_item.total_floats();
    for (int row = 0; row < of_item.num_rows; ++row) scale_query<Form>(of_item, row);
    float* tile_partials = partials;
    attend_tiles<Form>(call, item, turn, scratch,
                 [&](const Work& work, int row, int num_rows, const float* parts) {
        __builtin_memcpy(tile_partials + row * floats, parts, 4 * int64_t{num_rows} * floats);
        if (row + num_rows == work.num_rows) tile_partials += int64_t{work.num_rows} * floats;
    });
}

void merge(const Attention& call, const AttentionItem& item, const float* partials) {
    const ItemRows rows(call, item, item.kv_head);
    const int floats = rows.total_floats();
    float total[max_head_dim + 2];
    for (int row = 0; row < rows.num_rows; ++row) {
        clear_total(rows, row, total);
        for (int tile = item.first_tile; tile < item.end_tile; ++tile) {
            const int64_t index = int64_t{tile - item.first_tile} * rows.num_rows + row;
            const float* part = partials + index * floats;
            if (part[rows.stride] != 0.0f) add_part(part, rows.stride, total);
        }
        write_out(rows, row, total);
    }
}

// Calls use(work, row, total) for each row of each of an item's heads.
template <class Use>
FB_INLINE void for_totals(const Attention& call, const AttentionItem& item, uint8_t* scratch,
                          const Use& use) {
    for (int head = item.kv_head; head < item.kv_head + item.num_kv_heads; ++head) {
        const Work work(call, item, head, scratch);
        for (int row = 0; row < work.num_rows; ++row) {
            use(work, row, work.totals + row * work.total_floats());
        }
    }
}

template <class Form>
void attend_by(const Attention& call, const AttentionItem& item, const AttentionTurn& turn,
            uint8_t* scratch) {
    for_totals(call, item, scratch, [](const Work& work, int row, float* total) {
        scale_query<Form>(work, row);
        clear_total(work, row, total);
    });
    attend_tiles<Form>(call, item, turn, scratch,
                 [](const Work& work, int row, int num_rows, const float* parts) {
        const int floats = work.total_floats();
        for (int i = 0; i < num_rows; ++i) {
            const float* part = parts + i * floats;
            if (part[work.stride] == 0.0f) continue;
            add_part(part, work.stride, work.totals + (row + i) * floats);
        }
    });
    for_totals(call, item, scratch,
               [](const Work& work, int row, float* total) { write_out(work, row, total); });
}

void attend(const Attention& call, const AttentionItem& item, const AttentionTurn& turn,
            uint8_t* scratch) {
#if defined(FB_HAS_BFLOAT16_DOT)
    if (takes_pairs(call)) return attend_by<Pairs>(call, item, turn, scratch);
#endif
    attend_by<Singles>(call, item, turn, scratch);
}

void attend_part(const Attention& call, const AttentionItem& item, const AttentionTurn& turn,
                 float* partials, uint8_t* scratch) {
#if defined(FB_HAS_BFLOAT16_DOT)
    if (takes_pairs(call)) return attend_part_by<Pairs>(call, item, turn, partials, scratch);
#endif
    attend_part_by<Singles>(call, item, turn, partials, scratch);
}

}  // namespace

extern const AttentionKernels attention_kernels_table;
const AttentionKernels attention_kernels_table = {attend, attend_part, merge};

}  // namespace FOREBAY_ISA
}  // namespace forebay
