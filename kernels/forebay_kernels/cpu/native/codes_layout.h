// How a record holds the codes of 16 outputs and 32 inputs: 64 * bits bytes.
//
// A record stands for eight steps of four inputs. A step's codes are 64 bytes, that of output o and
// the step's input i at 4 * o + i: what a dot product of bytes takes. Of a code's bits
//
//   8          a run of 64 bytes a step
//   the low 4  a run for two steps: the even one in the low halves of its bytes
//   the low 2  a run for four steps, from the lowest bits up       (of 2 and 3 bits)
//   2 above 4  likewise, after the runs of the low 4               (of 6 bits)
//   1 on top   one run for all eight, from the lowest bit up       (of 3 and 5 bits), last
#pragma once

#include <cstdint>

namespace forebay {

constexpr int block_steps = 8;
constexpr int run_bytes = 64;

}  // namespace forebay
