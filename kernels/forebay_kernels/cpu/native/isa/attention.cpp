// One item of attention: a tile of keys is read and converted once, and used by all of its queries.
//
// Keys of a tile are turned to [head_dim][tile_keys], so that a score is one sum over head_dim in
// order, sixteen keys at a time; values lie as [tile_keys][stride], and a weighted sum is one over
// keys in order. Both products are the same few rows by vectors, whose number changes no result.
#include "../attention.h"

#include "exp_lanes.h"
#include "functions.h"
#include "lanes.h"
#include "stored_lanes.h"
#include "stored_numbers.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// What fits into the registers: accumulators of rows by vectors, a vector and a number.
#if defined(__AVX512F__)
constexpr int block_rows = 6, block_vectors = 4;
#elif defined(__AVX2__)
constexpr int block_rows = 3, block_vectors = 2;
#else
constexpr int block_rows = 2, block_vectors = 1;
#endif

constexpr float unseen = -0x1p127f;

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

// numbers [size] of one head as they are stored, its scale left out.
FB_INLINE void read_head(const void* stored, Number number, int size, float* numbers) {
    switch (number) {
        case Number::float32: {
            const float* from = static_cast<const float*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = from[i];
            return;
        }
        case Number::bfloat16: {
            const uint16_t* from = static_cast<const uint16_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = of_bfloat16(from[i]);
            return;
        }
        case Number::float16: {
            const uint16_t* from = static_cast<const uint16_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = of_float16(from[i]);
            return;
        }
        case Number::fp8: {
            const uint8_t* from = static_cast<const uint8_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = of_fp8(from[i]);
            return;
        }
        case Number::int8: {
            const int8_t* from = static_cast<const int8_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = from[i];
            return;
        }
        case Number::int4: {
            const uint8_t* from = static_cast<const uint8_t*>(stored);
            for (int i = 0; i < size / 2; ++i) {
                numbers[i] = static_cast<float>((from[i] & 15) - 8);
                numbers[size / 2 + i] = static_cast<float>((from[i] >> 4) - 8);
            }
            return;
        }
    }
}

// Where a key and its value lie in the cache, in heads from the first.
FB_INLINE int64_t place_of(const Work& work, int tile, int key) {
    const KvCache& cache = work.call.cache;
    const int position = tile * tile_keys + key;
    const int64_t block = work.item.block_table[position / cache.block_size];
    const int64_t slot = block * cache.block_size + position % cache.block_size;
    return slot * cache.num_kv_heads + work.item.kv_head;
}

// Sixteen keys from `key` on and their values, of which num_keys are there.
struct KeyGroup {
    int key;
    int num_keys;
    const void* keys[16];
    const void* values[16];
};

template <Number number>
FB_INLINE void read_group(const Work& work, const KeyGroup& group) {
    for (int i = 0; i < work.stride; i += 16) {
        Floats rows[16];
        for (int j = 0; j < 16; ++j) {
            rows[j] = j < group.num_keys ? load_stored<number>(group.keys[j], work.head_dim, i)
                                         : zero_floats();
        }
        turn(rows);
        float* to = work.keys + i * tile_keys + group.key;
        for (int j = 0; j < 16; ++j) store(to + j * tile_keys, rows[j]);
    }
    for (int j = 0; j < group.num_keys; ++j) {
        float* to = work.values + (group.key + j) * work.stride;
        for (int i = 0; i < work.stride; i += 16) {
            store(to + i, load_stored<number>(group.values[j], work.head_dim, i));
        }
    }
}

// The same of heads whose size is no multiple of vectors.
void read_odd_group(const Work& work, const KeyGroup& group) {
    const Number number = work.call.cache.number;
    float numbers[max_head_dim];
    for (int j = 0; j < 16; ++j) {
        const bool is_there = j < group.num_keys;
        if (is_there) read_head(group.keys[j], number, work.head_dim, numbers);
        float* to = work.keys + group.key + j;
        for (int i = 0; i < work.head_dim; ++i) to[i * tile_keys] = is_there ? numbers[i] : 0.0f;
        if (!is_there) continue;
        float* value = work.values + (group.key + j) * work.stride;
        read_head(group.values[j], number, work.head_dim, value);
        for (int i = work.head_dim; i < work.stride; ++i) value[i] = 0.0f;
    }
}

void read_any_group(const Work& work, const KeyGroup& group) {
    const Number number = work.call.cache.number;
    const int whole = number == Number::int4 ? 32 : 16;
    if (work.head_dim % whole != 0) return read_odd_group(work, group);
    switch (number) {
        case Number::float32: return read_group<Number::float32>(work, group);
        case Number::bfloat16: return read_group<Number::bfloat16>(work, group);
        case Number::float16: return read_group<Number::float16>(work, group);
        case Number::fp8: return read_group<Number::fp8>(work, group);
        case Number::int8: return read_group<Number::int8>(work, group);
        case Number::int4: return read_group<Number::int4>(work, group);
    }
}

// Keys [begin, end) of a tile and their values into scratch; begin is a multiple of 16, and up to
// the next one behind end keys are zeros.
void read_tile(const Work& work, int tile, int begin, int end) {
    const KvCache& cache = work.call.cache;
    const int64_t bytes = cache.head_bytes();
    for (int key = begin; key < end; key += 16) {
        KeyGroup group = {key, least(16, end - key), {}, {}};
        for (int j = 0; j < group.num_keys; ++j) {
            const int64_t place = place_of(work, tile, key + j);
            group.keys[j] = static_cast<const uint8_t*>(cache.k) + place * bytes;
            group.values[j] = static_cast<const uint8_t*>(cache.v) + place * bytes;
            __builtin_prefetch(group.values[j]);
            if (!work.has_scales()) continue;
            work.k_scales[key + j] = cache.k_scale[place];
            work.v_scales[key + j] = cache.v_scale[place];
        }
        for (int j = group.num_keys; j < 16; ++j) work.k_scales[key + j] = 0.0f;
        for (int j = group.num_keys; j < 16; ++j) work.v_scales[key + j] = 0.0f;
        read_any_group(work, group);
    }
}

// A product of few rows: out [rows][vectors * 16] = x [rows][begin, end) @ y [begin, end)[…].
struct SmallProduct {
    const float* x;
    int64_t x_stride;
    const float* y;
    int64_t y_stride;
    int begin, end;
    float* out;
    int64_t out_stride;
};

template <int rows, int vectors>
FB_INLINE void multiply(const SmallProduct& product, int column) {
    Floats sums[rows][vectors];
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) sums[row][i] = zero_floats();
    }
    const float* y = product.y + product.begin * product.y_stride + column;
    for (int k = product.begin; k < product.end; ++k, y += product.y_stride) {
        Floats right[vectors];
        for (int i = 0; i < vectors; ++i) right[i] = load(y + 16 * i);
        for (int row = 0; row < rows; ++row) {
            const Floats left = spread(product.x[row * product.x_stride + k]);
            for (int i = 0; i < vectors; ++i) sums[row][i] = fma(left, right[i], sums[row][i]);
        }
    }
    for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < vectors; ++i) {
            store(product.out + row * product.out_stride + column + 16 * i, sums[row][i]);
        }
    }
}

template <int rows>
void multiply_columns(const SmallProduct& product, int column, int end) {
    for (; column + 16 * block_vectors <= end; column += 16 * block_vectors) {
        multiply<rows, block_vectors>(product, column);
    }
    for (; column < end; column += 16) multiply<rows, 1>(product, column);
}

void multiply_rows(const SmallProduct& product, int num_rows, int column, int end) {
    static_assert(block_rows <= 6);
    switch (num_rows) {
        case 1: return multiply_columns<1>(product, column, end);
        case 2: return multiply_columns<2>(product, column, end);
#if defined(__AVX2__)
        case 3: return multiply_columns<3>(product, column, end);
#endif
#if defined(__AVX512F__)
        case 4: return multiply_columns<4>(product, column, end);
        case 5: return multiply_columns<5>(product, column, end);
        case 6: return multiply_columns<6>(product, column, end);
#endif
        default: return;
    }
}

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
