"""The gates of an MLP: silu(gate) * up, or gelu(gate) * up by its tanh form; batch-invariant."""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.elementwise import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant, divisible


@triton.jit
def _gate_mul_kernel(
    gate_up,  # [T, 2 * I]
    out,  # [T, I]
    gate_up_stride,
    out_stride,
    size,  # I
    IS_GELU: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_in = columns < size
    gates = gate_up + row * gate_up_stride
    gate = tl.load(gates + columns, is_in, 0.0).to(tl.float32)
    up = tl.load(gates + size + columns, is_in, 0.0).to(tl.float32)
    if IS_GELU:
        # 0.5 * (1 + tanh(y)) is sigmoid(2 * y), and 1.59577 is 2 * sqrt(2 / pi).
        bent = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    else:
        bent = gate
    # Below -80 all is lost in rounding, and the exponential of what is far below would overflow.
    bent = tl.where(bent < -80.0, -80.0, bent)
    # As the portable form rounds: the gate before the product.
    gated = (gate * tl.sigmoid(bent)).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * out_stride + columns, (gated * up).to(out.dtype.element_ty), is_in)


def silu_mul(gate_up: Tensor) -> Tensor:
    """As portable.elementwise.silu_mul."""
    return _launch(gate_up, is_gelu=False)


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    """As portable.elementwise.gelu_tanh_mul."""
    return _launch(gate_up, is_gelu=True)


def _launch(gate_up: Tensor, *, is_gelu: bool) -> Tensor:
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(num_rows, size)
    if num_rows == 0:
        return out
    launch = TABLE.choose(architecture_of(gate_up.device))
    _gate_mul_kernel[(num_rows, triton.cdiv(size, launch.tiles["TILE"]))](
        gate_up,
        out,
        gate_up.stride(0),
        out.stride(0),
        size,
        IS_GELU=is_gelu,
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return out


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One serves every size that divides by 16; a mixture's experts may have others."""
    sizes = [shape.intermediate_size]
    if shape.mixture is not None:
        sizes += [shape.mixture.intermediate_size, shape.mixture.shared_intermediate_size]
    numbers = ("gate_up_stride", "out_stride", "size")
    launch, num_rows = TABLE.choose(shape.architecture), 8_192
    for size in filter(None, sizes):
        yield Variant(
            f"gate_mul/{shape.activation}-{shape.dtype}{'' if size % 16 == 0 else f'-i{size}'}",
            _gate_mul_kernel,
            {
                **dict.fromkeys(("gate_up", "out"), f"*{shape.dtype}"),
                **dict.fromkeys(numbers, "i32"),
            },
            {"IS_GELU": shape.activation == "gelu_tanh", **launch.tiles},
            launch,
            aligned=divisible(
                gate_up=0, out=0, gate_up_stride=2 * size, out_stride=size, size=size
            ),
            sized_for=f"T={num_rows} I={size}",
            bytes_moved=3 * num_rows * size * shape.itemsize,
        )
