"""Soft cap of logits, in place where they are float32 already; batch-invariant."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.elementwise import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant, divisible


@triton.jit
def _softcap_kernel(
    x,  # [T, V]
    out,  # [T, V] float32; may be x
    x_stride,
    out_stride,
    cap,
    size,  # V
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_in = columns < size
    part = tl.load(x + row * x_stride + columns, is_in, 0.0).to(tl.float32) / cap
    # tanh(y) is 2 * sigmoid(2 * y) - 1, which for small y loses what its series keeps.
    square = part * part
    series = part * (1.0 - square * (0.3333333333 - 0.1333333333 * square))
    part = tl.where(part < -20.0, -20.0, part)
    bent = tl.where(square < 0.003, series, 2.0 * tl.sigmoid(2.0 * part) - 1.0)
    tl.store(out + row * out_stride + columns, bent * cap, is_in)


def softcap(x: Tensor, cap: float) -> Tensor:
    """As portable.elementwise.softcap; x [T, V] may be written over."""
    num_rows, size = x.shape
    out = x if x.dtype == torch.float32 else torch.empty_like(x, dtype=torch.float32)
    if num_rows == 0:
        return out
    launch = TABLE.choose(architecture_of(x.device))
    _softcap_kernel[(num_rows, triton.cdiv(size, launch.tiles["TILE"]))](
        x,
        out,
        x.stride(0),
        out.stride(0),
        cap,
        size,
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return out


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One, for families that cap their logits."""
    if not shape.has_logit_softcap:
        return
    size, num_rows, launch = shape.vocab_size, 256, TABLE.choose(shape.architecture)
    numbers = ("x_stride", "out_stride", "size")
    yield Variant(
        f"softcap/{shape.dtype}{'' if size % 16 == 0 else f'-v{size}'}",
        _softcap_kernel,
        {
            "x": f"*{shape.dtype}",
            "out": "*fp32",
            **dict.fromkeys(numbers, "i32"),
            "cap": "fp32",
        },
        dict(launch.tiles),
        launch,
        aligned=frozenset(("x", "out")) | divisible(**dict.fromkeys(numbers, size)),
        sized_for=f"T={num_rows} V={size}",
        bytes_moved=num_rows * size * (4 + shape.itemsize),
    )
