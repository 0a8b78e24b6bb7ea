"""RMSNorm, alone or after adding to the residual stream.

A program takes a row whole, in an order that depends on its length alone: batch-invariant.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.rms_norm import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant, divisible


@triton.jit
def _rms_norm_kernel(
    x,  # [T, N]
    residual,  # [T, N], added to where HAS_RESIDUAL
    weight,  # [N]
    out,  # [T, N]; may be x
    x_stride,
    residual_stride,
    out_stride,
    eps,
    N: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    residual += row * residual_stride
    out += row * out_stride
    squares = tl.zeros([TILE], tl.float32)
    total = tl.zeros([TILE], tl.float32)
    for start in tl.static_range(0, N, TILE):
        columns = start + tl.arange(0, TILE)
        is_in = columns < N
        total = tl.load(x + columns, is_in, 0.0).to(tl.float32)
        if HAS_RESIDUAL:
            total += tl.load(residual + columns, is_in, 0.0).to(tl.float32)
            # Rounded as it is kept, so that the norm is of what the next layer reads.
            kept = total.to(residual.dtype.element_ty)
            tl.store(residual + columns, kept, is_in)
            total = kept.to(tl.float32)
        squares += total * total
    scale = tl.rsqrt(tl.sum(squares) / N + eps)
    for start in tl.static_range(0, N, TILE):
        columns = start + tl.arange(0, TILE)
        is_in = columns < N
        if N > TILE:
            # Longer than a tile, a row is read twice, the second time most likely from a cache.
            source = residual if HAS_RESIDUAL else x
            total = tl.load(source + columns, is_in, 0.0).to(tl.float32)
        normed = total * scale * tl.load(weight + columns, is_in, 0.0).to(tl.float32)
        tl.store(out + columns, normed.to(out.dtype.element_ty), is_in)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As portable.elementwise.rms_norm. Shapes: x, out [T, N], rows apart by any stride."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _launch(x, None, weight, out, eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """As ops.add_rms_norm: the sum is written into residual, and the normed into x."""
    _launch(x, residual, weight, x, eps)
    return x, residual


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, eps: float) -> None:
    num_rows, size = x.shape
    if num_rows == 0:
        return
    launch = TABLE.choose(architecture_of(x.device), size=size)
    added = x if residual is None else residual
    _rms_norm_kernel[(num_rows,)](
        x,
        added,
        weight,
        out,
        x.stride(0),
        added.stride(0),
        out.stride(0),
        eps,
        N=size,
        HAS_RESIDUAL=residual is not None,
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def variants(shape: ModelShape) -> Iterator[Variant]:
    """Before the first layer without a sum, behind each block with one, and behind the last.

    Where a block's result is normed too before it is added, that is as before the first layer.
    """
    size = shape.hidden_size
    strides = ("x_stride", "residual_stride", "out_stride")
    pointers = ("x", "residual", "weight", "out")
    launch = TABLE.choose(shape.architecture, size=size)
    num_rows = 8_192
    dtypes = "-".join(dict.fromkeys((shape.dtype, shape.norm_dtype)))
    for has_residual in (False, True):
        types = dict.fromkeys(pointers, f"*{shape.dtype}") | {"weight": f"*{shape.norm_dtype}"}
        yield Variant(
            f"{'add_rms_norm' if has_residual else 'rms_norm'}/n{size}-{dtypes}",
            _rms_norm_kernel,
            {**types, **dict.fromkeys(strides, "i32"), "eps": "fp32"},
            {"N": size, "HAS_RESIDUAL": has_residual, **launch.tiles},
            launch,
            aligned=frozenset(pointers) | divisible(**dict.fromkeys(strides, size)),
            sized_for=f"T={num_rows}",
            bytes_moved=(4 if has_residual else 2) * num_rows * size * shape.itemsize,
        )
