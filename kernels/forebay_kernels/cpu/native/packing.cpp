#include "packing.h"

#include <cstring>

#include "codes_layout.h"
#include "matrix.h"

namespace forebay {
namespace {

// Four codes of one output are a word, and a step of a block 16 of them.
using Step = uint32_t[tile_outputs];

int least(int a, int b) { return a < b ? a : b; }

void read_block(const CodeRows& rows, int tile, int block, Step (&steps)[block_steps]) {
    const int first = block * block_inputs;
    const int num_inputs = least(block_inputs, rows.num_inputs - first);
    const int num_outputs = least(tile_outputs, rows.num_outputs - tile * tile_outputs);
    if (num_inputs < block_inputs || num_outputs < tile_outputs) std::memset(steps, 0, sizeof steps);
    for (int output = 0; output < num_outputs; ++output) {
        const int64_t row = int64_t{tile} * tile_outputs + output;
        uint32_t words[block_steps] = {};
        std::memcpy(words, rows.codes + row * rows.row_stride + first, num_inputs);
        for (int step = 0; step < block_steps; ++step) steps[step][output] = words[step];
    }
}

// A run that holds `width` bits, from `from` on, of each of 8 / width steps.
uint8_t* put_run(const Step* steps, int width, int from, uint8_t* out) {
    const uint32_t mask = 0x01010101u * ((1u << width) - 1);
    Step run = {};
    for (int i = 0; i < 8 / width; ++i) {
        for (int output = 0; output < tile_outputs; ++output) {
            run[output] |= (steps[i][output] >> from & mask) << (i * width);
        }
    }
    std::memcpy(out, run, run_bytes);
    return out + run_bytes;
}

uint8_t* put_runs(const Step* steps, int width, int from, uint8_t* out) {
    for (int step = 0; step < block_steps; step += 8 / width) {
        out = put_run(steps + step, width, from, out);
    }
    return out;
}

uint8_t* put_record(const Step* steps, int bits, uint8_t* out) {
    switch (bits) {
        case 2: return put_runs(steps, 2, 0, out);
        case 3: return put_runs(steps, 1, 2, put_runs(steps, 2, 0, out));
        case 4: return put_runs(steps, 4, 0, out);
        case 5: return put_runs(steps, 1, 4, put_runs(steps, 4, 0, out));
        case 6: return put_runs(steps, 2, 4, put_runs(steps, 4, 0, out));
        default: return put_runs(steps, 8, 0, out);
    }
}

template <class Element, int group>
void pack_dense_tile(const DenseRows& rows, int tile, Element* out) {
    const int num_outputs = least(tile_outputs, rows.num_outputs - tile * tile_outputs);
    const int num_padded = (rows.num_inputs + group - 1) / group * group;
    if (num_outputs < tile_outputs || num_padded > rows.num_inputs) {
        std::memset(out, 0, sizeof(Element) * num_padded * tile_outputs);
    }
    const Element* from = reinterpret_cast<const Element*>(rows.weights) +
                          int64_t{tile} * tile_outputs * rows.row_stride;
    constexpr int at_once = 64;
    for (int first = 0; first < rows.num_inputs; first += at_once) {
        const int end = least(first + at_once, rows.num_inputs);
        for (int output = 0; output < num_outputs; ++output) {
            const Element* row = from + output * rows.row_stride;
            Element* to = out + output * group;
            for (int k = first; k < end; ++k) {
                to[k / group * group * tile_outputs + k % group] = row[k];
            }
        }
    }
}

int num_tiles(int num_outputs) { return (num_outputs + tile_outputs - 1) / tile_outputs; }

}  // namespace

void pack_codes(const CodeRows& rows, uint8_t* out, Pool& pool) {
    const int num_blocks = (rows.num_inputs + block_inputs - 1) / block_inputs;
    const int64_t tile_bytes = int64_t{run_bytes} * rows.bits * num_blocks;
    pool.run(num_tiles(rows.num_outputs), [&](int tile, int) {
        Step steps[block_steps];
        uint8_t* record = out + tile * tile_bytes;
        for (int block = 0; block < num_blocks; ++block) {
            read_block(rows, tile, block, steps);
            record = put_record(steps, rows.bits, record);
        }
    });
}

void pack_dense(const DenseRows& rows, uint8_t* out, Pool& pool) {
    pool.run(num_tiles(rows.num_outputs), [&](int tile, int) {
        if (rows.element_bytes == 4) {
            const int64_t size = int64_t{tile_outputs} * rows.num_inputs;
            pack_dense_tile<uint32_t, 1>(rows, tile, reinterpret_cast<uint32_t*>(out) + tile * size);
        } else {
            const int64_t size = int64_t{tile_outputs} * ((rows.num_inputs + 1) / 2 * 2);
            pack_dense_tile<uint16_t, 2>(rows, tile, reinterpret_cast<uint16_t*>(out) + tile * size);
        }
    });
}

}  // namespace forebay
