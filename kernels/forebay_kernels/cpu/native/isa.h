// The sets of instructions that kernels are compiled for, and the one that is in use.
//
// Each source in isa/ is compiled once for each set, in a namespace of the set's name, and gives a
// table of its functions; whoever calls a kernel takes it from the table of isa().
#pragma once

namespace forebay {

// From the least to the most: whatever has one has those before it.
enum class Isa { portable, avx2, avx512, avx512_vnni, avx512_bf16 };

constexpr int num_isas = 5;

// The one in use: at first the most that this processor has and this library was compiled for.
Isa isa();

}  // namespace forebay
