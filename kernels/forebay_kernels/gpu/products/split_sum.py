"""Splits a product's inputs over programs, and adds up their parts, always in their order."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Launch, Variant
from forebay_kernels.portable.batch_invariant import is_on

MOST_SPLIT_ROWS = 16
"""With more, there are programs enough, and parts would be more to move than weights."""
INVARIANT_ROWS = 64
"""Whose launch serves all numbers of rows in batch_invariant."""
_PROGRAMS = 768
"""That are wanted at once: some of every size on each of a GPU's hundred and some multiprocessors,
so that none waits for the last."""
_LEAST_STEPS = 4
"""Of a split; with fewer, starting would take longer than reading."""
LAUNCH = Launch({"BLOCK": 512}, num_warps=4, shared_bytes=2048)


@triton.jit(
    do_not_specialize=["num_numbers", "num_outputs", "num_parts", "has_bias", "has_residual"]
)
def split_sum_kernel(
    # parts [S, T, N] float32; bias [N]; residual, out [T, N]; num_numbers = T * N
    parts,
    bias,
    residual,
    out,
    num_numbers,
    num_outputs,
    num_parts,
    has_bias,
    has_residual,
    BLOCK: tl.constexpr,
):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < num_numbers
    total = tl.zeros((BLOCK,), tl.float32)
    at = parts + places
    for _ in range(num_parts):
        total += tl.load(at, mask=mask, other=0.0)
        at += num_numbers.to(tl.int64)
    if has_bias:
        total += tl.load(bias + places % num_outputs, mask=mask, other=0.0).to(tl.float32)
    if has_residual:
        total += tl.load(residual + places, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=mask)


def rows_to_launch_for(num_rows: int) -> int:
    """What a launch is chosen by: one number of rows where results must not depend on it."""
    return INVARIANT_ROWS if is_on() else num_rows


def choose_split(num_rows: int, num_columns: int, num_chunks: int, step: int) -> tuple[int, int]:
    """Into how many parts a product's inputs are cut, and the chunks of each.

    num_columns: tiles of outputs; num_chunks: of inputs; step: chunks that a program takes at a
    time. In batch_invariant nothing is split, as what is split goes by the number of rows.
    """
    if is_on() or num_rows > MOST_SPLIT_ROWS:
        return 1, num_chunks
    most = num_chunks // (step * _LEAST_STEPS)
    num_splits = max(1, min(triton.cdiv(_PROGRAMS, num_columns), most))
    chunks_a_split = triton.cdiv(triton.cdiv(num_chunks, num_splits), step) * step
    return triton.cdiv(num_chunks, chunks_a_split), chunks_a_split


def new_parts(out: Tensor, num_splits: int) -> Tensor:
    """Room for parts [S, T, N] float32 of out [T, N]: none where nothing is split."""
    return out.new_empty(num_splits if num_splits > 1 else 0, *out.shape, dtype=torch.float32)


def split_sum(parts: Tensor, out: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
    """out = the sum of parts, plus bias and residual.

    Shapes: parts [S, T, N] float32; bias [N]; residual, out [T, N] contiguous.
    """
    grid = (triton.cdiv(out.numel(), LAUNCH.tiles["BLOCK"]),)
    split_sum_kernel[grid](
        parts,
        out if bias is None else bias,
        out if residual is None else residual,
        out,
        out.numel(),
        out.shape[1],
        parts.shape[0],
        int(bias is not None),
        int(residual is not None),
        **LAUNCH.tiles,
        num_warps=LAUNCH.num_warps,
        num_stages=LAUNCH.num_stages,
    )


def variants(shape: ModelShape) -> Iterator[Variant]:
    """The one compilation; a model of quantised weights reaches it, and a mixture."""
    if shape.weights.format not in ("int4", "int8") and shape.mixture is None:
        return
    pointer = f"*{shape.dtype}"
    yield Variant(
        name=f"split_sum/{shape.dtype}",
        kernel=split_sum_kernel,
        signature={
            "parts": "*fp32",
            "bias": pointer,
            "residual": pointer,
            "out": pointer,
            "num_numbers": "i32",
            "num_outputs": "i32",
            "num_parts": "i32",
            "has_bias": "i32",
            "has_residual": "i32",
        },
        constants=dict(LAUNCH.tiles),
        launch=LAUNCH,
        aligned=frozenset({"parts", "bias", "residual", "out"}),
        sized_for=f"8 parts of {shape.hidden_size}",
        bytes_moved=8 * shape.hidden_size * 4,
    )
