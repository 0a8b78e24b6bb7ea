// Products of float32 inputs, with weights that are float32 or become it.
//
// A few tiles are taken at a time, and of them as many inputs as the nearest cache holds: there
// weights in another format are unpacked to, once for all rows. Each output is one sum over the
// inputs in their order, which is put aside between those turns.
#include "fetching.h"
#include "finishing.h"
#include "products_of_isa.h"
#include "unpacking.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

constexpr int64_t turn_floats = int64_t{most_turn_inputs} * tile_outputs;
// Of weights that are read where they lie, for many rows: what the second cache holds.
constexpr int long_turn_inputs = 1024;

// Weights of one turn, of each tile, for its inputs. ahead: how far those lie, in bytes, that come
// next from memory; 0 where they come from the cache.
struct Turn {
    const uint8_t* weights[tiles_at_once];
    int num_inputs;
    int64_t ahead;
};

// How weights are read: [inputs][16] float32, or [pairs][16][2] bfloat16.
struct FloatWeights {
    FB_INLINE static Floats load_input(const uint8_t* weights, int k) {
        const uint8_t* from = weights + int64_t{k} * run_bytes;
        return load(reinterpret_cast<const float*>(from));
    }
    FB_INLINE static const uint8_t* pair(const uint8_t* weights, int k) {
        return weights + int64_t{k} * run_bytes;
    }
    static constexpr int lines_a_pair = 2;
};
struct Bfloat16Weights {
    FB_INLINE static Floats load_input(const uint8_t* weights, int k) {
        const Ints both = load_ints(pair(weights, k));
        return k % 2 == 0 ? low_bfloat16(both) : high_bfloat16(both);
    }
    FB_INLINE static const uint8_t* pair(const uint8_t* weights, int k) {
        return weights + int64_t{k / 2} * run_bytes;
    }
    static constexpr int lines_a_pair = 1;
};

template <class Weights, int num_rows>
FB_INLINE void add_input(const Turn& turn, int k, const float* x, int64_t stride,
                         Floats (&sum)[num_rows][tiles_at_once]) {
    Floats weights[tiles_at_once];
#pragma GCC unroll 2
    for (int t = 0; t < tiles_at_once; ++t) weights[t] = Weights::load_input(turn.weights[t], k);
#pragma GCC unroll 16
    for (int r = 0; r < num_rows; ++r) {
        const Floats input = spread(x[r * stride + k]);
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) sum[r][t] = fma(weights[t], input, sum[r][t]);
    }
}

template <class Weights>
FB_INLINE void fetch_ahead(const Turn& turn, int k) {
#pragma GCC unroll 2
    for (int t = 0; t < tiles_at_once; ++t) {
        const uint8_t* from = Weights::pair(turn.weights[t], k);
#pragma GCC unroll 2
        for (int i = 0; i < Weights::lines_a_pair; ++i) fetch(from + i * run_bytes, turn.ahead);
    }
}

// sums [num_rows][tiles_at_once][16], added to.
template <class Weights, int num_rows>
inline void add_products(const Turn& turn, const float* x, int64_t stride, float* sums) {
    Floats sum[num_rows][tiles_at_once];
#pragma GCC unroll 16
    for (int r = 0; r < num_rows; ++r) {
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            sum[r][t] = load(sums + (r * tiles_at_once + t) * tile_outputs);
        }
    }
    int k = 0;
    for (; k + 1 < turn.num_inputs; k += 2) {
        fetch_ahead<Weights>(turn, k);
        add_input<Weights, num_rows>(turn, k, x, stride, sum);
        add_input<Weights, num_rows>(turn, k + 1, x, stride, sum);
    }
    if (k < turn.num_inputs) add_input<Weights, num_rows>(turn, k, x, stride, sum);
#pragma GCC unroll 16
    for (int r = 0; r < num_rows; ++r) {
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            store(sums + (r * tiles_at_once + t) * tile_outputs, sum[r][t]);
        }
    }
}

// Up to so many rows bfloat16 is read where it lies, and becomes float32 for each turn anew.
constexpr int packed_rows = float_rows_at_once < 4 ? float_rows_at_once : 4;

inline bool reads_packed(const Matrix& matrix, int num_rows) {
    return matrix.format == Format::bfloat16 && num_rows <= packed_rows;
}

using AddProducts = void (*)(const Turn&, const float*, int64_t, float*);

template <int num_rows>
constexpr AddProducts of_floats() {
    return add_products<FloatWeights, (num_rows > float_rows_at_once ? 1 : num_rows)>;
}
template <int num_rows>
constexpr AddProducts of_bfloat16() {
    return add_products<Bfloat16Weights, (num_rows > packed_rows ? 1 : num_rows)>;
}

// By the number of rows.
constexpr AddProducts from_floats[] = {
    nullptr,        of_floats<1>(), of_floats<2>(),  of_floats<3>(),  of_floats<4>(),
    of_floats<5>(), of_floats<6>(), of_floats<7>(),  of_floats<8>(),  of_floats<9>(),
    of_floats<10>(), of_floats<11>(), of_floats<12>()};
constexpr AddProducts from_bfloat16[] = {nullptr, of_bfloat16<1>(), of_bfloat16<2>(),
                                         of_bfloat16<3>(), of_bfloat16<4>()};

inline void unpack_bfloat16(const uint8_t* pairs, int num_pairs, int64_t ahead, float* out) {
    for (int pair = 0; pair < num_pairs; ++pair, pairs += run_bytes, out += 2 * tile_outputs) {
        fetch(pairs, ahead);
        const Ints both = load_ints(pairs);
        store(out, low_bfloat16(both));
        store(out + tile_outputs, high_bfloat16(both));
    }
}

// The weights of one unit of inputs, from steps of codes.
inline void scale_steps(const Matrix& matrix, int tile, int group, const uint8_t* steps,
                        float* out) {
    const int64_t first = int64_t{group} * tile_outputs;
    const Floats scale = mul(load_half(matrix.tile_scales(tile) + first),
                             spread(matrix.scale_factor));
    Ints zero = spread_int(1 << (matrix.bits - 1));
    Floats min = zero_floats();
    if (matrix.zero_kind == ZeroKind::integers) {
        zero = load_uint8(matrix.tile_zeros(tile) + first);
    } else if (matrix.zero_kind == ZeroKind::mins) {
        zero = zero_ints();
        const uint8_t* mins = matrix.tile_zeros(tile) + 2 * first;
        min = mul(load_half(reinterpret_cast<const uint16_t*>(mins)), spread(matrix.min_factor));
    }
    for (int k = 0; k < matrix.unit_inputs(); ++k, out += tile_outputs) {
        const Ints code = byte_of_lanes(load_bytes(steps + k / 4 * run_bytes), k % 4);
        store(out, add(mul(to_floats(subtract(code, zero)), scale), min));
    }
}

inline void unpack_codes(const Matrix& matrix, int tile, int block, int num_blocks, float* out) {
    uint8_t steps[block_steps * run_bytes];
    const int num_units = block_inputs / matrix.unit_inputs();
    for (int end = block + num_blocks; block < end; ++block) {
        unpack_records(matrix.bits, matrix.tile(tile) + block * matrix.record_bytes(), 1,
                       fetched_ahead(matrix), steps);
        for (int unit = 0; unit < num_units; ++unit) {
            const int input = block * block_inputs + unit * matrix.unit_inputs();
            scale_steps(matrix, tile, input / matrix.group_size,
                        steps + unit * matrix.unit_inputs() / 4 * run_bytes, out);
            out += matrix.unit_inputs() * tile_outputs;
        }
    }
}

// Where the weights of a tile's inputs from `first` on are float32, if they are not read packed.
inline const uint8_t* take_weights(const Matrix& matrix, int tile, int first, int num_inputs,
                                   float* unpacked) {
    const int64_t lines = matrix.format == Format::float32 ? first : first / 2;
    const uint8_t* packed = matrix.tile(tile) + lines * run_bytes;
    if (matrix.format == Format::float32 || unpacked == nullptr) return packed;
    if (matrix.format == Format::bfloat16) {
        unpack_bfloat16(packed, (num_inputs + 1) / 2, fetched_ahead(matrix), unpacked);
    } else {
        unpack_codes(matrix, tile, first / block_inputs,
                     (num_inputs + block_inputs - 1) / block_inputs, unpacked);
    }
    return reinterpret_cast<const uint8_t*>(unpacked);
}

struct Inputs {
    const float* x;
    int64_t stride;
};

// Adds one turn's products for all rows of the part; sums [rows][tiles_at_once][16].
inline void add_turn(const Turn& turn, const AddProducts* by_rows, const Inputs& inputs, int first,
                     const Part& part, float* sums) {
    for (int row = part.first_row; row < part.end_row;) {
        const int num_rows = next_rows(part.end_row - row, float_rows_at_once, float_rows_at_once);
        by_rows[num_rows](turn, inputs.x + row * inputs.stride + first, inputs.stride, sums);
        row += num_rows;
        sums += num_rows * tiles_at_once * tile_outputs;
    }
}

inline void multiply_tiles(const Matrix& matrix, const Inputs& inputs, const Part& part,
                           float* sums, float* unpacked) {
    const int64_t num_sums = int64_t{part.end_row - part.first_row} * tiles_at_once * tile_outputs;
    for (int64_t i = 0; i < num_sums; i += tile_outputs) store(sums + i, zero_floats());
    const bool is_packed = reads_packed(matrix, part.end_row - part.first_row);
    const AddProducts* by_rows = is_packed ? from_bfloat16 : from_floats;
    const bool is_read = is_packed || matrix.format == Format::float32;
    const bool is_long =
        matrix.format == Format::float32 && part.end_row - part.first_row > float_rows_at_once;
    const Turns turns(matrix, is_long ? long_turn_inputs : most_turn_inputs);
    for (int first = 0; first < matrix.num_stored; first += turns.turn_inputs) {
        const int64_t ahead = is_long ? fetched_ahead(matrix) : turns.ahead(first);
        Turn turn{{}, turns.length(first), is_read ? ahead : 0};
        for (int t = 0; t < tiles_at_once; ++t) {
            const int tile = part.first_tile + t < part.end_tile ? part.first_tile + t
                                                                 : part.end_tile - 1;
            turn.weights[t] = take_weights(matrix, tile, first, turn.num_inputs,
                                           is_packed ? nullptr : unpacked + t * turn_floats);
        }
        add_turn(turn, by_rows, inputs, first, part, sums);
    }
}

inline void finish_tiles(const Matrix& matrix, const Part& part, const float* sums,
                         const Destination& to) {
    for (int row = part.first_row; row < part.end_row; ++row) {
        for (int t = 0; t < tiles_at_once; ++t, sums += tile_outputs) {
            const int tile = part.first_tile + t;
            if (tile < part.end_tile) finish(load(sums), row, tile, matrix.num_outputs, to);
        }
    }
}

}  // namespace

void multiply_floats(const Matrix& matrix, const float* x, int64_t stride, const Part& part,
                     const Destination& to, uint8_t* scratch) {
    float* unpacked = reinterpret_cast<float*>(scratch);
    float* sums = unpacked + tiles_at_once * turn_floats;
    Part some = part;
    for (int tile = part.first_tile; tile < part.end_tile; tile += tiles_at_once) {
        some.first_tile = tile;
        multiply_tiles(matrix, {x, stride}, some, sums, unpacked);
        finish_tiles(matrix, some, sums, to);
    }
}

int64_t floats_scratch_bytes(const Matrix&, int num_rows) {
    return 4 * tiles_at_once * (turn_floats + int64_t{num_rows} * tile_outputs);
}

}  // namespace FOREBAY_ISA
}  // namespace forebay
