// How a product is split: its inputs are rounded, and its tiles and rows shared out to the threads.
#include "linear.h"

#include <cstring>

#include "products.h"

namespace forebay {
namespace {

// Of so few rows each thread rounds all for itself, which is shorter than to wait for the others.
constexpr int rows_rounded_by_each = 4;
// Rows that are multiplied with one set of tiles after the other: their inputs are to stay in the
// second cache. Fewer only where a thread would have no part.
constexpr int most_part_rows = 384;
constexpr int least_part_rows = 48;
constexpr int parts_a_thread = 4;

// What a thread claims at a time takes as long as reading so much memory, at most where that is more
// than a few tiles: a thread that is disturbed keeps the others waiting no longer.
constexpr int64_t most_claimed_bytes = 32 * 1024;
// To claim takes as long as reading this.
constexpr int64_t claim_bytes = 2 * 1024;
// Of so many rows, to multiply takes as long as to read the weights.
constexpr int rows_of_one_read = 3;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// A stride of an odd number of cache lines: rows that are read side by side lie in different sets.
int64_t row_stride_bytes(int64_t num_bytes) { return round_up(num_bytes, 128) + 64; }

// The parts of a product, tiles innermost: inputs stay in the second cache, and the tiles that are
// fetched meanwhile are those of the next part.
class Split {
public:
    Split(const Matrix& matrix, int num_rows, int num_threads, int tiles_at_once)
        : num_rows_(num_rows), num_tiles_(matrix.num_tiles()) {
        const int tile_parts = (num_tiles_ + tiles_at_once - 1) / tiles_at_once;
        const int wanted = (parts_a_thread * num_threads + tile_parts - 1) / tile_parts;
        const int possible = (num_rows + least_part_rows - 1) / least_part_rows;
        const int needed = (num_rows + most_part_rows - 1) / most_part_rows;
        row_parts_ = greatest(needed, least(wanted, possible));
        rows_a_part_ = (num_rows + row_parts_ - 1) / row_parts_;
        row_parts_ = (num_rows + rows_a_part_ - 1) / rows_a_part_;
        const int64_t some_bytes =
            matrix.tile_bytes() * tiles_at_once * (1 + rows_a_part_ / rows_of_one_read);
        tiles_a_part_ = tiles_at_once * choose_times(some_bytes, tiles_at_once, num_threads);
        tile_parts_ = (num_tiles_ + tiles_a_part_ - 1) / tiles_a_part_;
    }
    int num_parts() const { return row_parts_ * tile_parts_; }
    int rows_a_part() const { return rows_a_part_; }
    Part part(int index) const {
        const int row = index / tile_parts_ * rows_a_part_;
        const int tile = index % tile_parts_ * tiles_a_part_;
        return {row, least(row + rows_a_part_, num_rows_), tile,
                least(tile + tiles_a_part_, num_tiles_)};
    }

private:
    static int least(int a, int b) { return a < b ? a : b; }
    static int greatest(int a, int b) { return a < b ? b : a; }

    // How often the tiles that are multiplied at once fit best into a part, if those weigh
    // some_bytes: all threads should be done at about the same time, after few claims.
    int choose_times(int64_t some_bytes, int tiles_at_once, int num_threads) const {
        const int most = static_cast<int>(most_claimed_bytes / some_bytes);
        int best = 1;
        int64_t best_cost = 0;
        for (int times = 1; times == 1 || times <= most; ++times) {
            const int64_t size = int64_t{times} * tiles_at_once;
            const int64_t num_parts = (num_tiles_ + size - 1) / size * row_parts_;
            const int64_t turns = (num_parts + num_threads - 1) / num_threads;
            const int64_t cost = turns * (times * some_bytes + claim_bytes);
            if (times == 1 || cost < best_cost) {
                best = times;
                best_cost = cost;
            }
        }
        return best;
    }

    int num_rows_, num_tiles_;
    int row_parts_, rows_a_part_, tile_parts_, tiles_a_part_;
};

// Rows of a call in another form, in one block of memory.
class Rounding {
public:
    Rounding(const Matrix& matrix, int num_rows) : num_rows_(num_rows) {
        code_stride_ = row_stride_bytes(int64_t{matrix.num_blocks()} * block_inputs);
        unit_stride_ = row_stride_bytes(4 * int64_t{matrix.num_units()}) / 4;
    }
    int64_t num_bytes() const { return num_rows_ * (code_stride_ + 8 * unit_stride_); }
    RoundedRows at(uint8_t* memory) const {
        float* scales = reinterpret_cast<float*>(memory + num_rows_ * code_stride_);
        return {reinterpret_cast<int8_t*>(memory), scales, scales + num_rows_ * unit_stride_,
                static_cast<int32_t>(code_stride_), static_cast<int32_t>(unit_stride_)};
    }

private:
    int64_t num_rows_, code_stride_, unit_stride_;
};

Destination destination(const LinearCall& call) {
    return {call.bias, call.out, call.out_stride, call.adds};
}

void multiply_codes(const Matrix& matrix, const LinearCall& call, Pool& pool, Scratch& scratch) {
    const Products& with = products();
    const Split split(matrix, call.num_rows, pool.num_threads(), with.tiles_at_once);
    const Rounding rounding(matrix, call.num_rows);
    const int64_t unpacked_bytes = with.codes_scratch_bytes(matrix);
    const bool by_each = call.num_rows <= rows_rounded_by_each;
    const int64_t shared_bytes = by_each ? pool.num_threads() : rounding.num_bytes();
    uint8_t* shared = scratch.shared().take(shared_bytes);
    const auto round_row = [&](const RoundedRows& to, int row) {
        with.round_codes(matrix, call.x + row * call.x_stride, to, row);
    };
    if (by_each) {
        std::memset(shared, 0, shared_bytes);
    } else {
        pool.run(call.num_rows, [&](int row, int) { round_row(rounding.at(shared), row); });
    }
    pool.run(split.num_parts(), [&](int index, int thread) {
        const int64_t own_bytes = unpacked_bytes + (by_each ? rounding.num_bytes() : 0);
        uint8_t* own = scratch.of_thread(thread).take(own_bytes);
        const RoundedRows rows = rounding.at(by_each ? own + unpacked_bytes : shared);
        if (by_each && !shared[thread]) {
            for (int row = 0; row < call.num_rows; ++row) round_row(rows, row);
            shared[thread] = 1;
        }
        with.multiply_codes(matrix, rows, split.part(index), destination(call), own);
    });
}

void multiply_bfloat16(const Matrix& matrix, const LinearCall& call, Pool& pool,
                       Scratch& scratch) {
    const Products& with = products();
    const Split split(matrix, call.num_rows, pool.num_threads(), with.tiles_at_once);
    const int64_t stride = row_stride_bytes(2 * int64_t{matrix.num_stored} + 2) / 2;
    uint16_t* x = reinterpret_cast<uint16_t*>(scratch.shared().take(2 * stride * call.num_rows));
    pool.run(call.num_rows, [&](int row, int) {
        with.round_bfloat16(matrix, call.x + row * call.x_stride, x + row * stride);
    });
    pool.run(split.num_parts(), [&](int index, int) {
        with.multiply_bfloat16(matrix, x, stride, split.part(index), destination(call));
    });
}

// Inputs as they are stored, one row.
void order_inputs(const Matrix& matrix, const float* x, float* out) {
    if (matrix.input_order == nullptr) {
        std::memcpy(out, x, 4 * int64_t{matrix.num_stored});
        return;
    }
    for (int k = 0; k < matrix.num_stored; ++k) out[k] = x[matrix.input_order[k]];
}

void multiply_floats(const Matrix& matrix, const LinearCall& call, Pool& pool, Scratch& scratch) {
    const Products& with = products();
    const Split split(matrix, call.num_rows, pool.num_threads(), with.tiles_at_once);
    const float* x = call.x;
    int64_t stride = call.x_stride;
    // Rows that would lie in few sets of the cache are copied apart.
    const bool collide = call.num_rows > rows_rounded_by_each && 4 * stride % 1024 == 0;
    if (matrix.input_order != nullptr || collide) {
        stride = row_stride_bytes(4 * int64_t{matrix.num_stored}) / 4;
        float* ordered =
            reinterpret_cast<float*>(scratch.shared().take(4 * stride * call.num_rows));
        pool.run(call.num_rows, [&](int row, int) {
            order_inputs(matrix, call.x + row * call.x_stride, ordered + row * stride);
        });
        x = ordered;
    }
    const int64_t own_bytes = with.floats_scratch_bytes(matrix, split.rows_a_part());
    pool.run(split.num_parts(), [&](int index, int thread) {
        with.multiply_floats(matrix, x, stride, split.part(index), destination(call),
                             scratch.of_thread(thread).take(own_bytes));
    });
}

}  // namespace

void linear(const Matrix& matrix, const LinearCall& call, Pool& pool, Scratch& scratch) {
    if (call.num_rows == 0) return;
    const bool is_rounded = call.input_form == InputForm::rounded;
    if (is_rounded && matrix.format == Format::codes) {
        multiply_codes(matrix, call, pool, scratch);
    } else if (is_rounded && matrix.format == Format::bfloat16 &&
               products().multiply_bfloat16 != nullptr) {
        multiply_bfloat16(matrix, call, pool, scratch);
    } else {
        multiply_floats(matrix, call, pool, scratch);
    }
}

}  // namespace forebay
