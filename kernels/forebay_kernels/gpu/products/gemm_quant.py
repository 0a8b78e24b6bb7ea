"""x @ weight.T + bias + residual with a weight in four or eight bits, dequantised in registers.

Up to 16 rows the inputs may be split over programs, whose parts split_sum adds up in their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import Architecture, architecture_of
from forebay_kernels.gpu.launch_tables.gemm_quant import TABLE
from forebay_kernels.gpu.model_shape import Dtype, ModelShape
from forebay_kernels.gpu.products.product_store import store_product
from forebay_kernels.gpu.products.quant_product import quant_product
from forebay_kernels.gpu.products.split_sum import (
    INVARIANT_ROWS,
    MOST_SPLIT_ROWS,
    choose_split,
    new_parts,
    rows_to_launch_for,
    split_sum,
)
from forebay_kernels.gpu.variant import Launch, Variant, divisible
from forebay_kernels.quant_matrix import QuantMatrix

_CHUNK_BYTES = 64
"""Of an output's codes, that a program of few rows takes at a time, unless a group has more."""


@triton.jit(
    do_not_specialize=[
        "num_rows",
        "num_inputs",
        "chunks_a_split",
        "num_splits",
        "has_bias",
        "has_residual",
    ]
)
def gemm_quant_kernel(
    # x [T, K], rows stride_x apart; out, residual [T, N]; bias [N]; parts [S, T, N] float32
    x,
    words,
    scales,
    zeros,
    bias,
    residual,
    out,
    parts,
    num_rows,
    num_outputs,
    num_inputs,
    stride_x,
    chunks_a_split,
    num_splits,
    has_bias,
    has_residual,
    BITS: tl.constexpr,
    IS_GROUPED: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    # Neighbours in the grid share a tile of weights.
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    first = split * chunks_a_split
    last = tl.minimum(first + chunks_a_split, tl.cdiv(num_inputs, BLOCK_K))
    total = quant_product(
        x + rows.to(tl.int64) * stride_x,
        rows < num_rows,
        words,
        scales,
        zeros,
        outputs,
        num_outputs,
        num_inputs,
        first,
        last,
        BITS,
        IS_GROUPED,
        HAS_ZEROS,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        CHUNKS,
    )
    store_product(
        total,
        bias,
        residual,
        out,
        parts,
        rows,
        outputs,
        num_rows,
        num_outputs,
        split,
        num_splits,
        has_bias,
        has_residual,
    )


def quant_linear(
    x: Tensor, matrix: QuantMatrix, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """x @ weight.T + bias + residual.

    Shapes: x [T, num_inputs]; bias [N]; residual, out [T, N].
    """
    if matrix.input_order is not None:
        x = x.index_select(1, matrix.input_order)
    x = x.contiguous()
    num_rows, num_outputs = x.shape[0], matrix.num_outputs
    if num_rows == 0:
        return x.new_empty(0, num_outputs)
    launch = choose_launch(num_rows, architecture_of(x.device))
    constants = {
        **launch.tiles,
        **chunk_constants(launch, matrix.bits, matrix.group_size),
        "HAS_ZEROS": matrix.zeros is not None,
    }
    num_columns = triton.cdiv(num_outputs, constants["BLOCK_N"])
    num_splits, chunks_a_split = choose_split(
        num_rows,
        num_columns,
        triton.cdiv(matrix.num_stored, constants["BLOCK_K"]),
        constants["CHUNKS"],
    )
    out = x.new_empty(num_rows, num_outputs)
    parts = new_parts(out, num_splits)
    gemm_quant_kernel[(triton.cdiv(num_rows, constants["BLOCK_M"]), num_columns, num_splits)](
        x,
        matrix.words,
        matrix.scales,
        matrix.words if matrix.zeros is None else matrix.zeros,
        out if bias is None else bias,
        out if residual is None else residual.contiguous(),
        out,
        parts,
        num_rows,
        num_outputs,
        matrix.num_stored,
        x.stride(0),
        chunks_a_split,
        num_splits,
        int(bias is not None),
        int(residual is not None),
        **constants,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    if num_splits > 1:
        split_sum(parts, out, bias, residual)
    return out


def choose_launch(num_rows: int, architecture: Architecture) -> Launch:
    """The launch for so many rows, or for all numbers of them where results must not tell."""
    return TABLE.choose(architecture, num_rows=rows_to_launch_for(num_rows))


def chunk_constants(launch: Launch, bits: int, group_size: int | None) -> dict[str, int | bool]:
    """What quant_product's constants are for a matrix: a chunk is a group where there are some."""
    num_inputs = _CHUNK_BYTES * 8 // bits
    size = group_size or num_inputs
    has_few_rows = launch.tiles["BLOCK_M"] <= MOST_SPLIT_ROWS
    return {
        "BITS": bits,
        "IS_GROUPED": group_size is not None,
        "BLOCK_K": size,
        "CHUNKS": max(1, num_inputs // size) if has_few_rows else 1,
    }


def variants(shape: ModelShape) -> Iterator[Variant]:
    """A compilation for each launch that numbers of rows come to."""
    weights = shape.weights
    if weights.format not in ("int4", "int8"):
        return
    num_rows = (INVARIANT_ROWS,) if shape.is_batch_invariant else (1, 16, 64, 128)
    for rows in num_rows:
        for num_outputs in (2 * shape.intermediate_size, shape.hidden_size, shape.qkv_size):
            yield _variant(shape, rows, num_outputs)


def _variant(shape: ModelShape, num_rows: int, num_outputs: int) -> Variant:
    weights, num_inputs = shape.weights, shape.hidden_size
    bits = 4 if weights.format == "int4" else 8
    launch = TABLE.choose(shape.architecture, num_rows=num_rows)
    block_m, block_n = launch.tiles["BLOCK_M"], launch.tiles["BLOCK_N"]
    zeros = "-zeros" if weights.has_zero_points else ""
    odd = "" if num_outputs % 16 == 0 else f"-n{num_outputs}"
    num_scales = num_outputs * (num_inputs // weights.group_size if weights.group_size else 1)
    return Variant(
        name=f"gemm_quant/{block_m}x{block_n}-{shape.dtype}-{weights.format}-"
        f"g{weights.group_size}{zeros}{odd}",
        kernel=gemm_quant_kernel,
        signature=_signature(shape.dtype, weights.scale_dtype or shape.dtype),
        constants={
            **launch.tiles,
            **chunk_constants(launch, bits, weights.group_size or None),
            "HAS_ZEROS": weights.has_zero_points,
        },
        launch=launch,
        aligned=divisible(
            **dict.fromkeys(_TENSORS, 0), num_outputs=num_outputs, stride_x=num_inputs
        ),
        uses_tensor_cores=True,
        sized_for=f"{num_rows} x {num_inputs} by {num_outputs}",
        bytes_moved=num_outputs * num_inputs * bits // 8
        + num_scales * (3 if weights.has_zero_points else 2)
        + 2 * num_rows * (num_inputs + num_outputs),
        flops=2 * num_rows * num_outputs * num_inputs,
    )


def _signature(dtype: Dtype, scale_dtype: Dtype) -> dict[str, str]:
    pointer = f"*{dtype}"
    tensors = {"x": pointer, "words": "*u8", "scales": f"*{scale_dtype}", "zeros": "*u8"}
    tensors |= dict.fromkeys(("bias", "residual", "out"), pointer) | {"parts": "*fp32"}
    return tensors | dict.fromkeys(_NUMBERS, "i32")


_NUMBERS = (
    "num_rows",
    "num_outputs",
    "num_inputs",
    "stride_x",
    "chunks_a_split",
    "num_splits",
    "has_bias",
    "has_residual",
)
_TENSORS = ("x", "words", "scales", "zeros", "bias", "residual", "out", "parts")
