// Sums of a few tiles by a few rows, of codes and inputs of eight bits.
//
// A unit's products are added as integers, exactly. Then, in float: the units of a group, each by
// its input's scale, and the groups, each by the weight's scale. That order is the same in every
// instance, so that all give the same bits.
#pragma once

#include <cstring>

#include "../products.h"
#include "fetching.h"
#include "finishing.h"
#include "unpacking.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// As many tiles as are multiplied at once; of fewer, the last is there again.
struct Tiles {
    const uint8_t* codes[tiles_at_once];
    const uint16_t* scales[tiles_at_once];
    const uint8_t* zeros[tiles_at_once];
};

struct Units {
    int num_units;
    int group_units;
    // How far ahead codes are fetched into the cache, and scales, in bytes.
    int64_t codes_ahead;
    int64_t scales_ahead;
};

// What an instance is for. bits: 4, or 8 for records that are unpacked, too.
template <int bits_, bool is_wide_, int steps_, ZeroKind zeros_, bool is_grouped_>
struct Variant {
    static constexpr int bits = bits_;
    static constexpr bool is_wide = is_wide_;
    static constexpr int steps = steps_;
    static constexpr ZeroKind zeros = zeros_;
    static constexpr bool is_grouped = is_grouped_;
};

FB_INLINE int32_t int_at(const void* from) {
    int32_t x;
    std::memcpy(&x, from, 4);
    return x;
}

template <class V, int num_rows>
struct CodesKernel {
    static constexpr int unit_bytes = V::steps * V::bits * 8;
    static constexpr int unit_inputs = 4 * V::steps;

    // use(sums [tile][row]), once.
    template <class Use>
    FB_INLINE void run(const Tiles& tiles, const Units& units, const RoundedRows& x, int first_row,
                       const Use& use) {
        Floats local[tiles_at_once][num_rows];
#pragma GCC unroll 2
        for (auto& of_tile : local) {
#pragma GCC unroll 16
            for (auto& sum : of_tile) sum = zero_floats();
        }
        x_ = &x;
        first_row_ = first_row;
        ahead_ = units.codes_ahead;
        scales_ahead_ = units.scales_ahead;
        int unit = 0;
        for (int group = 0; unit < units.num_units; ++group) {
            int end = unit + (V::is_grouped ? units.group_units : 1);
            end = end < units.num_units ? end : units.num_units;
            add_group(tiles, group, unit, end, local);
            unit = end;
        }
        use(local);
    }

private:
    const RoundedRows* x_;
    int first_row_;
    int64_t ahead_, scales_ahead_;

    FB_INLINE const int8_t* inputs(int row, int unit) const {
        return x_->codes + int64_t{first_row_ + row} * x_->code_stride + unit * unit_inputs;
    }
    FB_INLINE float input_scale(int row, int unit) const {
        return x_->scales[int64_t{first_row_ + row} * x_->unit_stride + unit];
    }
    FB_INLINE const void* offset(int row, int unit) const {
        return static_cast<const uint8_t*>(x_->offsets) +
               4 * (int64_t{first_row_ + row} * x_->unit_stride + unit);
    }

    FB_INLINE void add_group(const Tiles& tiles, int group, int unit, int end,
                             Floats (&local)[tiles_at_once][num_rows]) const {
        Floats of_group[tiles_at_once][num_rows];
        add_unit<true>(tiles, group, unit, of_group);
        if constexpr (V::is_grouped) {
            for (++unit; unit < end; ++unit) add_unit<false>(tiles, group, unit, of_group);
        }
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            const uint16_t* from = tiles.scales[t] + group * tile_outputs;
            fetch(from, scales_ahead_);
            const Floats scale = load_half(from);
#pragma GCC unroll 16
            for (int r = 0; r < num_rows; ++r) local[t][r] = fma(of_group[t][r], scale, local[t][r]);
        }
        if constexpr (V::zeros == ZeroKind::mins) add_mins(tiles, group, local);
    }

    FB_INLINE void add_mins(const Tiles& tiles, int group,
                            Floats (&local)[tiles_at_once][num_rows]) const {
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            const Floats min = load_half(reinterpret_cast<const uint16_t*>(tiles.zeros[t]) +
                                         group * tile_outputs);
#pragma GCC unroll 16
            for (int r = 0; r < num_rows; ++r) {
                float by;
                std::memcpy(&by, offset(r, group), 4);
                local[t][r] = fma(min, spread(by), local[t][r]);
            }
        }
    }

    template <bool is_first>
    FB_INLINE void add_unit(const Tiles& tiles, int group, int unit,
                            Floats (&of_group)[tiles_at_once][num_rows]) const {
        Sums<V::is_wide> products[tiles_at_once][num_rows];
        Ints zeros[tiles_at_once];
#pragma GCC unroll 2
        for (int t = 0; t < tiles_at_once; ++t) {
            zeros[t] = V::zeros == ZeroKind::integers
                           ? load_uint8(tiles.zeros[t] + group * tile_outputs)
                           : zero_ints();
#pragma GCC unroll 16
            for (int r = 0; r < num_rows; ++r) products[t][r].start(start(zeros[t], r, unit));
        }
#pragma GCC unroll unrolled_steps
        for (int step = 0; step < V::steps; ++step) {
            Bytes codes[tiles_at_once];
#pragma GCC unroll 2
            for (int t = 0; t < tiles_at_once; ++t) {
                const uint8_t* record = tiles.codes[t] + int64_t{unit} * unit_bytes;
                if (V::bits == 8 || step % 2 == 0) {
                    fetch(record + step * V::bits * 8, ahead_);
                }
                codes[t] = load_step<V::bits>(record, step);
            }
#pragma GCC unroll 16
            for (int r = 0; r < num_rows; ++r) {
                const Ints four = spread_int(int_at(inputs(r, unit) + 4 * step));
#pragma GCC unroll 2
                for (int t = 0; t < tiles_at_once; ++t) products[t][r].add_products(codes[t], four);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < num_rows; ++r) {
            const Floats scale = spread(input_scale(r, unit));
#pragma GCC unroll 2
            for (int t = 0; t < tiles_at_once; ++t) {
                const Floats total = to_floats(products[t][r].total(start(zeros[t], r, unit)));
                of_group[t][r] =
                    is_first ? mul(total, scale) : fma(total, scale, of_group[t][r]);
            }
        }
    }

    FB_INLINE Ints start(Ints zeros, int row, int unit) const {
        if constexpr (V::zeros == ZeroKind::mins) return zero_ints();
        const Ints by = spread_int(int_at(offset(row, unit)));
        if constexpr (V::zeros == ZeroKind::middle) return by;
        return mul_short(zeros, by);
    }
};

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
