"""Rounds each token to eight bits by a scale of its own, for the product of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Launch, Variant, divisible
from forebay_kernels.portable.int8_linear import LARGEST, LEAST

LAUNCH = Launch({"TILE": 1024}, num_warps=4)
_LARGEST = tl.constexpr(LARGEST)
_LEAST = tl.constexpr(LEAST)


@triton.jit(do_not_specialize=["has_largest"])
def round_tokens_kernel(
    x,  # [T, K], rows stride_x apart
    largest,  # [T] float32: of each row, on all ranks; read if has_largest
    rounded,  # [T, K] int8
    scales,  # [T] float32
    num_inputs,
    stride_x,
    has_largest,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, TILE)
    x += row * stride_x
    if has_largest:
        most = tl.load(largest + row)
    else:
        extremes = tl.zeros((TILE,), tl.float32)
        for start in range(0, num_inputs, TILE):
            part = tl.load(x + start + columns, mask=columns < num_inputs - start, other=0.0)
            extremes = tl.maximum(extremes, tl.abs(part.to(tl.float32)))
        most = tl.max(extremes)
    scale = tl.maximum(most, _LEAST) / _LARGEST
    tl.store(scales + row, scale)
    for start in range(0, num_inputs, TILE):
        mask = columns < num_inputs - start
        part = tl.load(x + start + columns, mask=mask, other=0.0).to(tl.float32) / scale
        # 1.5 * 2 ** 23, whose last bit is one: what is added to it rounds, halves to even.
        part = (part + 12582912.0) - 12582912.0
        part = tl.minimum(tl.maximum(part, -_LARGEST), _LARGEST)
        tl.store(rounded + row * num_inputs + start + columns, part.to(tl.int8), mask=mask)


def round_tokens(
    x: Tensor, join_largest: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """As portable.int8_linear.round_tokens."""
    num_rows, num_inputs = x.shape
    x = x.contiguous()
    scales = x.new_empty(num_rows, 1, dtype=torch.float32)
    rounded = x.new_empty(num_rows, num_inputs, dtype=torch.int8)
    largest = None
    if join_largest is not None:
        largest = join_largest(x.abs().amax(-1, keepdim=True).float()).contiguous()
    round_tokens_kernel[(num_rows,)](
        x,
        scales if largest is None else largest,
        rounded,
        scales,
        num_inputs,
        x.stride(0),
        int(largest is not None),
        **LAUNCH.tiles,
        num_warps=LAUNCH.num_warps,
        num_stages=LAUNCH.num_stages,
    )
    return rounded, scales


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One, for models whose activations are rounded."""
    if shape.weights.format != "w8a8":
        return
    size = shape.hidden_size
    yield Variant(
        name=f"round_tokens/{shape.dtype}",
        kernel=round_tokens_kernel,
        signature={
            "x": f"*{shape.dtype}",
            "largest": "*fp32",
            "rounded": "*i8",
            "scales": "*fp32",
            **dict.fromkeys(("num_inputs", "stride_x", "has_largest"), "i32"),
        },
        constants=dict(LAUNCH.tiles),
        launch=LAUNCH,
        aligned=divisible(x=0, largest=0, rounded=0, scales=0, num_inputs=size, stride_x=size),
        sized_for=f"T=64 K={size}",
        bytes_moved=64 * 3 * size,
    )
