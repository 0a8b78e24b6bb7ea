"""Rows of an embedding, or of a shard of one, by token id; batch-invariant."""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.elementwise import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant, divisible


@triton.jit(do_not_specialize=["first_id", "num_ids"])
def _embedding_kernel(
    token_ids,  # [T] int64
    table,  # [V, N]
    out,  # [T, N]
    first_id,
    num_ids,  # V
    table_stride,
    out_stride,
    size,  # N
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    place = tl.load(token_ids + row) - first_id
    num_found = tl.where((place >= 0) & (place < num_ids), size, 0)
    found = tl.load(table + place * table_stride + columns, columns < num_found, 0.0)
    tl.store(out + row * out_stride + columns, found, columns < size)


def embedding(token_ids: Tensor, table: Tensor, first_id: int | None = None) -> Tensor:
    """As portable.elementwise.embedding."""
    num_rows, size = token_ids.shape[0], table.shape[1]
    out = table.new_empty(num_rows, size)
    if num_rows == 0:
        return out
    launch = TABLE.choose(architecture_of(table.device))
    _embedding_kernel[(num_rows, triton.cdiv(size, launch.tiles["TILE"]))](
        token_ids,
        table,
        out,
        first_id or 0,
        table.shape[0],
        table.stride(0),
        out.stride(0),
        size,
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return out


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One for all hidden sizes that divide by 16."""
    size, num_rows, launch = shape.hidden_size, 8_192, TABLE.choose(shape.architecture)
    numbers = ("table_stride", "out_stride", "size")
    yield Variant(
        f"embedding/{shape.dtype}{'' if size % 16 == 0 else f'-n{size}'}",
        _embedding_kernel,
        {
            "token_ids": "*i64",
            **dict.fromkeys(("table", "out"), f"*{shape.dtype}"),
            **dict.fromkeys(("first_id", "num_ids", *numbers), "i32"),
        },
        dict(launch.tiles),
        launch,
        aligned=frozenset(("token_ids", "table", "out"))
        | divisible(**dict.fromkeys(numbers, size)),
        sized_for=f"T={num_rows} N={size}",
        bytes_moved=2 * num_rows * size * shape.itemsize,
    )
