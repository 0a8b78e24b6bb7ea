"""Adds up the parts of products whose inputs were split over programs, always in their order."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Launch, Variant

LAUNCH = Launch({"BLOCK": 512}, num_warps=4, shared_bytes=2048)


@triton.jit(do_not_specialize=["num_numbers", "num_parts", "has_bias", "has_residual"])
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
    )


def variants(shape: ModelShape) -> Iterator[Variant]:
    """The one compilation; a model of quantised weights reaches it."""
    if shape.weights.format not in ("int4", "int8"):
        return
    pointer, num_bytes = f"*{shape.dtype}", torch.finfo(torch.float32).bits // 8
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
        aligned=frozenset({"parts", "bias", "residual", "out", "num_outputs"}),
        sized_for=f"8 parts of {shape.hidden_size}",
        bytes_moved=8 * shape.hidden_size * num_bytes,
    )
