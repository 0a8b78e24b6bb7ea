// Codes out of their records, one step of 64 at a time; see codes_layout.h.
#pragma once

#include "../codes_layout.h"
#include "../matrix.h"
#include "fetching.h"
#include "lanes.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// Step `step` of a record.
template <int bits>
FB_INLINE Bytes load_step(const uint8_t* record, int step) {
    if constexpr (bits == 8) {
        return load_bytes(record + step * run_bytes);
    } else if constexpr (bits >= 4) {
        const Bytes low = take_bits(load_bytes(record + step / 2 * run_bytes), step % 2 * 4, 15);
        const uint8_t* above = record + 4 * run_bytes;
        if constexpr (bits == 4) return low;
        if constexpr (bits == 5) return put_bits(low, take_bits(load_bytes(above), step, 1), 4);
        if constexpr (bits == 6) {
            const Bytes run = load_bytes(above + step / 4 * run_bytes);
            return put_bits(low, take_bits(run, step % 4 * 2, 3), 4);
        }
    } else {
        const Bytes low = take_bits(load_bytes(record + step / 4 * run_bytes), step % 4 * 2, 3);
        if constexpr (bits == 2) return low;
        return put_bits(low, take_bits(load_bytes(record + 2 * run_bytes), step, 1), 2);
    }
}

// ahead: how far those records lie that will be unpacked next; they are fetched meanwhile.
template <int bits>
inline void unpack_records(const uint8_t* records, int num_records, int64_t ahead, uint8_t* out) {
    for (int i = 0; i < num_records; ++i, records += bits * run_bytes) {
#pragma GCC unroll 8
        for (int run = 0; run < bits; ++run) {
            fetch(records + run * run_bytes, ahead);
        }
#pragma GCC unroll 8
        for (int step = 0; step < block_steps; ++step, out += run_bytes) {
            store_bytes(out, load_step<bits>(records, step));
        }
    }
}

// Records of any number of bits as ones of eight.
inline void unpack_records(int bits, const uint8_t* records, int num_records, int64_t ahead,
                           uint8_t* out) {
    switch (bits) {
        case 2: return unpack_records<2>(records, num_records, ahead, out);
        case 3: return unpack_records<3>(records, num_records, ahead, out);
        case 4: return unpack_records<4>(records, num_records, ahead, out);
        case 5: return unpack_records<5>(records, num_records, ahead, out);
        case 6: return unpack_records<6>(records, num_records, ahead, out);
        default: return unpack_records<8>(records, num_records, ahead, out);
    }
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
