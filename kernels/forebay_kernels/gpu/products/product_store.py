"""The end that the kernels of products share: bias, residual and the store, or a split's part."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_product(
    total,  # [BLOCK_N, BLOCK_M] float32, outputs as rows
    # bias [N]; residual, out [T, N]; parts [S, T, N] float32
    bias,
    residual,
    out,
    parts,
    rows,  # [BLOCK_M] of T
    outputs,  # [BLOCK_N] of N
    num_rows,
    num_outputs,
    split,  # which of num_splits programs this is that share a tile's inputs
    num_splits,
    has_bias,
    has_residual,
):
    """Write a tile: as it is where others have the rest of the sum, else with what is added."""
    has_output = outputs < num_outputs
    mask = has_output[:, None] & (rows < num_rows)[None, :]
    places = rows.to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    if num_splits > 1:
        size = num_rows.to(tl.int64) * num_outputs
        tl.store(parts + split * size + places, total, mask=mask)
    else:
        if has_bias:
            total += tl.load(bias + outputs, mask=has_output, other=0.0).to(tl.float32)[:, None]
        if has_residual:
            total += tl.load(residual + places, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + places, total.to(out.dtype.element_ty), mask=mask)
