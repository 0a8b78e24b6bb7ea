"""x @ weight.T + bias + residual with a dense weight, the inputs always added up in one order.

What a product on a GPU is while results must not depend on who shares a batch; cuBLAS, which is
as fast for few rows and faster for many, chooses its order by their number. Also for few rows
without that condition, their inputs split over programs: bench/gpu.py compares it with cuBLAS.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.gemm_dense import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.products.dense_product import dense_product
from forebay_kernels.gpu.products.product_store import store_product
from forebay_kernels.gpu.products.split_sum import (
    INVARIANT_ROWS,
    choose_split,
    new_parts,
    rows_to_launch_for,
    split_sum,
)
from forebay_kernels.gpu.variant import Variant, divisible

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


@triton.jit(
    do_not_specialize=[
        "num_rows",
        "num_outputs",
        "chunks_a_split",
        "num_splits",
        "has_bias",
        "has_residual",
    ]
)
def gemm_dense_kernel(
    # x [T, K], rows stride_x apart; weight [N, K]; bias [N]; residual, out [T, N];
    # parts [S, T, N] float32
    x,
    weight,
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    first = split * chunks_a_split
    last = tl.minimum(first + chunks_a_split, tl.cdiv(num_inputs, BLOCK_K))
    total = dense_product(
        x + rows.to(tl.int64) * stride_x,
        rows < num_rows,
        weight,
        outputs,
        num_outputs,
        num_inputs,
        first,
        last,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
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


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """x @ weight.T + bias + residual.

    Shapes: x [T, K]; weight [N, K]; bias [N]; residual, out [T, N].
    """
    x = x.contiguous()
    num_rows, num_outputs, num_inputs = x.shape[0], *weight.shape
    out = x.new_empty(num_rows, num_outputs)
    if num_rows == 0:
        return out
    launch = TABLE.choose(
        architecture_of(x.device),
        num_rows=rows_to_launch_for(num_rows),
        is_wide=x.dtype.itemsize > 2,
    )
    tiles = launch.tiles
    num_columns = triton.cdiv(num_outputs, tiles["BLOCK_N"])
    num_chunks = triton.cdiv(num_inputs, tiles["BLOCK_K"])
    num_splits, chunks_a_split = choose_split(num_rows, num_columns, num_chunks, 1)
    parts = new_parts(out, num_splits)
    gemm_dense_kernel[(triton.cdiv(num_rows, tiles["BLOCK_M"]), num_columns, num_splits)](
        x,
        weight,
        out if bias is None else bias,
        out if residual is None else residual.contiguous(),
        out,
        parts,
        num_rows,
        num_outputs,
        num_inputs,
        x.stride(0),
        chunks_a_split,
        num_splits,
        int(bias is not None),
        int(residual is not None),
        **tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    if num_splits > 1:
        split_sum(parts, out, bias, residual)
    return out


def variants(shape: ModelShape) -> Iterator[Variant]:
    """The one launch of batch-invariant serving; without that, torch multiplies dense weights."""
    if not shape.is_batch_invariant:
        return
    launch = TABLE.choose(
        shape.architecture, num_rows=INVARIANT_ROWS, is_wide=shape.dtype == "fp32"
    )
    num_outputs = 2 * shape.intermediate_size
    for num_inputs in _input_sizes(shape):
        suffix = "" if num_inputs % 16 == 0 else f"-k{num_inputs}"
        yield Variant(
            name=f"gemm_dense/m{launch.tiles['BLOCK_M']}-{shape.dtype}{suffix}",
            kernel=gemm_dense_kernel,
            signature={
                **dict.fromkeys(("x", "weight", "bias", "residual", "out"), f"*{shape.dtype}"),
                "parts": "*fp32",
                **dict.fromkeys(_NUMBERS, "i32"),
            },
            constants=dict(launch.tiles),
            launch=launch,
            aligned=divisible(
                **dict.fromkeys(("x", "weight", "bias", "residual", "out", "parts"), 0),
                num_inputs=num_inputs,
                stride_x=num_inputs,
            ),
            uses_tensor_cores=shape.dtype != "fp32",
            sized_for=f"{INVARIANT_ROWS} x {num_inputs} by {num_outputs}",
            bytes_moved=2 * num_outputs * num_inputs,
            flops=2 * INVARIANT_ROWS * num_outputs * num_inputs,
        )


def _input_sizes(shape: ModelShape) -> Iterator[int]:
    """The inputs of a model's products."""
    yield from (shape.hidden_size, shape.num_heads * shape.head_dim, shape.intermediate_size)
    if shape.mixture is not None:
        yield shape.mixture.intermediate_size
        if shape.mixture.shared_intermediate_size:
            yield shape.mixture.shared_intermediate_size
