"""What the kernels for dense weights share: a tile of a product, its inputs always in one order."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def dense_product(
    x_rows,  # [BLOCK_M] pointers to rows of inputs; only those with has_row are read
    has_row,
    weight,  # [N, K] contiguous
    outputs,  # [BLOCK_N] of N
    num_outputs,
    num_inputs,
    # chunks of BLOCK_K inputs
    first,
    last,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The sums [BLOCK_N, BLOCK_M] float32 of weight times input, outputs as rows."""
    inputs = tl.arange(0, BLOCK_K)
    has_output = outputs < num_outputs
    weight_at = weight + outputs.to(tl.int64)[:, None] * num_inputs + inputs[None, :]
    x_at = x_rows[None, :] + inputs[:, None]
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for chunk in range(first, last):
        offset = chunk * BLOCK_K
        is_input = inputs < num_inputs - offset
        part = tl.load(weight_at + offset, mask=has_output[:, None] & is_input[None, :], other=0.0)
        x = tl.load(x_at + offset, mask=is_input[:, None] & has_row[None, :], other=0.0)
        total = tl.dot(part, x, total, input_precision="ieee")
    return total
