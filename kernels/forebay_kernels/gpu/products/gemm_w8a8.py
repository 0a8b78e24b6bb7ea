"""The product of bytes: rounded tokens by weights of eight bits, summed in int32.

Sums of integers are exact, so no order of adding and no number of rows can show in a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.gemm_w8a8 import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.products.quant_product import INTERPRETED
from forebay_kernels.gpu.products.round_tokens import round_tokens
from forebay_kernels.gpu.variant import Variant, divisible
from forebay_kernels.quant_matrix import WORD_BYTES, QuantMatrix

_WORD = tl.constexpr(WORD_BYTES)
_TENSORS = ("token_scales", "rounded", "words", "scales", "bias", "residual", "out")
_NUMBERS = ("num_rows", "num_outputs", "num_inputs", "has_bias", "has_residual")


@triton.jit
def _signed(codes):
    """Codes about 128 as numbers about 0."""
    if INTERPRETED:
        return (codes ^ 128).to(tl.int8, bitcast=True)
    else:
        return tl.inline_asm_elementwise(
            "xor.b32 $0, $1, 0x80808080;", "=r,r", [codes], tl.int8, True, 4
        )


@triton.jit(do_not_specialize=["num_rows", "has_bias", "has_residual"])
def gemm_w8a8_kernel(
    # rounded [T, K] int8; token_scales [T] float32
    rounded,
    token_scales,
    # words [K / 16, N, 16] uint8 and scales [N], as in QuantMatrix; bias [N]; residual, out [T, N]
    words,
    scales,
    bias,
    residual,
    out,
    num_rows,
    num_outputs,
    num_inputs,
    has_bias,
    has_residual,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inputs = tl.arange(0, BLOCK_K)
    has_row, has_output = rows < num_rows, outputs < num_outputs
    word_offsets = (inputs // _WORD).to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    words_at = words + word_offsets * _WORD + (inputs % _WORD)[None, :]
    x_at = rounded + rows.to(tl.int64)[None, :] * num_inputs + inputs[:, None]
    sums = tl.zeros((BLOCK_N, BLOCK_M), tl.int32)
    for start in range(0, num_inputs, BLOCK_K):
        is_input = inputs // _WORD * _WORD < num_inputs - start
        codes = tl.load(words_at, mask=has_output[:, None] & is_input[None, :], other=0)
        x = tl.load(x_at, mask=is_input[:, None] & has_row[None, :], other=0)
        sums = tl.dot(_signed(codes), x, sums, out_dtype=tl.int32)
        words_at += BLOCK_K * num_outputs.to(tl.int64)
        x_at += BLOCK_K
    total = sums.to(tl.float32) * tl.load(token_scales + rows, mask=has_row, other=0.0)[None, :]
    total *= tl.load(scales + outputs, mask=has_output, other=0.0).to(tl.float32)[:, None]
    mask = has_output[:, None] & has_row[None, :]
    places = rows.to(tl.int64)[None, :] * num_outputs + outputs[:, None]
    if has_bias:
        total += tl.load(bias + outputs, mask=has_output, other=0.0).to(tl.float32)[:, None]
    if has_residual:
        total += tl.load(residual + places, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=mask)


def int8_linear(
    x: Tensor,
    matrix: QuantMatrix,
    bias: Tensor | None = None,
    join_largest: Callable[[Tensor], Tensor] | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """As portable.int8_linear.int8_linear, plus residual [T, N]."""
    if matrix.input_order is not None:
        x = x.index_select(1, matrix.input_order)
    num_rows, num_outputs = x.shape[0], matrix.num_outputs
    out = x.new_empty(num_rows, num_outputs)
    if num_rows == 0:
        return out
    rounded, token_scales = round_tokens(x, join_largest)
    launch = TABLE.choose(architecture_of(x.device), num_rows=num_rows)
    tiles = launch.tiles
    grid = (triton.cdiv(num_rows, tiles["BLOCK_M"]), triton.cdiv(num_outputs, tiles["BLOCK_N"]))
    gemm_w8a8_kernel[grid](
        rounded,
        token_scales,
        matrix.words,
        matrix.scales,
        out if bias is None else bias,
        out if residual is None else residual.contiguous(),
        out,
        num_rows,
        num_outputs,
        matrix.num_stored,
        int(bias is not None),
        int(residual is not None),
        **tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return out


def variants(shape: ModelShape) -> Iterator[Variant]:
    """A compilation for each launch that numbers of rows come to."""
    if shape.weights.format != "w8a8":
        return
    num_outputs, num_inputs = 2 * shape.intermediate_size, shape.hidden_size
    scales = shape.weights.scale_dtype or shape.dtype
    for num_rows in (1, 64, 128):
        launch = TABLE.choose(shape.architecture, num_rows=num_rows)
        yield Variant(
            name=f"gemm_w8a8/m{launch.tiles['BLOCK_M']}-{shape.dtype}",
            kernel=gemm_w8a8_kernel,
            signature={
                **dict.fromkeys(("bias", "residual", "out"), f"*{shape.dtype}"),
                **{"rounded": "*i8", "words": "*u8", "scales": f"*{scales}"},
                "token_scales": "*fp32",
                **dict.fromkeys(_NUMBERS, "i32"),
            },
            constants=dict(launch.tiles),
            launch=launch,
            aligned=divisible(
                **dict.fromkeys(_TENSORS, 0), num_outputs=num_outputs, num_inputs=num_inputs
            ),
            uses_tensor_cores=True,
            sized_for=f"{num_rows} x {num_inputs} by {num_outputs}",
            bytes_moved=num_outputs * num_inputs + num_rows * (num_inputs + 2 * num_outputs),
            flops=2 * num_rows * num_outputs * num_inputs,
        )
