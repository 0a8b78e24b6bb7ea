"""Matrices in ggml's storage types, as floating point or as the codes that they are.

Works in pieces that stay in a processor's cache, by torch operations that all cores share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_budget.ggml import GGML_TYPES_BY_NAME
from forebay_kernels.code_matrix import CodeMatrix
from forebay_runtime.loading import ggml_codes, k_quants
from forebay_runtime.loading.ggml_codes import Reader

_PIECE_ELEMENTS = 2**18
"""1 MiB of float32: read, unpacked and scaled before the next piece evicts it."""

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_READERS: dict[str, Reader] = {
    "Q8_0": ggml_codes.read_q8_0,
    "Q6_K": k_quants.read_q6_k,
    "Q5_K": k_quants.read_q5_k,
    "Q5_1": ggml_codes.read_q5_1,
    "Q5_0": ggml_codes.read_q5_0,
    "Q4_K": k_quants.read_q4_k,
    "Q4_1": ggml_codes.read_q4_1,
    "Q4_0": ggml_codes.read_q4_0,
    "IQ4_NL": ggml_codes.read_iq4_nl,
    "Q3_K": k_quants.read_q3_k,
    "Q2_K": k_quants.read_q2_k,
}

CODED_TYPES = tuple(_READERS)
READABLE_TYPES = (*_PLAIN, *CODED_TYPES)


def dequantise(rows: Tensor, type_name: str, out: Tensor) -> None:
    """Convert raw rows into out, whose dtype may be any floating one.

    Shapes: rows [R, bytes of a row] uint8; out [R, elements of a row], or [R] for a vector.
    Raises: KeyError for a type that is not in READABLE_TYPES.
    """
    rows_per_piece = max(1, _PIECE_ELEMENTS * rows.shape[0] // out.numel())
    for source, target in zip(rows.split(rows_per_piece), out.split(rows_per_piece), strict=True):
        target.copy_(_numbers(source, type_name).view(target.shape))


def dequantise_columns(
    rows: Tensor, type_name: str, columns: slice, num_columns: int, out: Tensor
) -> None:
    """Convert some columns of raw rows into out; only the blocks that hold them are unpacked.

    Shapes: rows [R, bytes of num_columns] uint8; out [R, columns.stop - columns.start].
    """
    blocks, skipped = _cut_blocks(rows, type_name, columns)
    rows_per_piece = max(1, _PIECE_ELEMENTS // num_columns)
    for source, target in zip(blocks.split(rows_per_piece), out.split(rows_per_piece), strict=True):
        wide = _numbers(source, type_name).view(len(target), -1)
        target.copy_(wide[:, skipped : skipped + target.shape[1]])


def read_codes(rows: Tensor, type_name: str, columns: slice | None = None) -> CodeMatrix:
    """The codes of raw rows, or of some columns of them.

    Shapes: rows [R, bytes of a row] uint8. columns: whole groups; None: all.
    Raises: KeyError for a type that is not in CODED_TYPES.
    """
    skipped, num_rows = 0, len(rows)
    if columns is not None:
        rows, skipped = _cut_blocks(rows, type_name, columns)
    kind, read = GGML_TYPES_BY_NAME[type_name], _READERS[type_name]
    num_columns = rows.shape[1] // kind.block_bytes * kind.block_elements
    rows_per_piece = max(1, _PIECE_ELEMENTS // num_columns)
    codes = torch.empty(num_rows, num_columns, dtype=torch.uint8)
    scales, mins = [], []
    for source, target in zip(rows.split(rows_per_piece), codes.split(rows_per_piece), strict=True):
        groups = read(source)
        target.view(groups.codes.shape).copy_(groups.codes)
        scales.append(groups.scale.view(len(source), -1))
        if groups.minimum is not None:
            mins.append(groups.minimum.view(len(source), -1))
    stop = num_columns if columns is None else skipped + columns.stop - columns.start
    wanted = slice(skipped // groups.size, stop // groups.size)
    return CodeMatrix(
        codes[:, skipped:stop],
        torch.cat(scales)[:, wanted].T,
        groups.bits,
        groups.size,
        mins=torch.cat(mins)[:, wanted].T if mins else None,
    )


def _cut_blocks(rows: Tensor, type_name: str, columns: slice) -> tuple[Tensor, int]:
    """The blocks that hold some columns, and how many numbers lie before these."""
    kind = GGML_TYPES_BY_NAME[type_name]
    first, stop = columns.start // kind.block_elements, -(-columns.stop // kind.block_elements)
    blocks = rows[:, first * kind.block_bytes : stop * kind.block_bytes]
    return blocks, columns.start - first * kind.block_elements


def _numbers(rows: Tensor, type_name: str) -> Tensor:
    """All numbers of raw rows, in some floating dtype."""
    dtype = _PLAIN.get(type_name)
    if dtype is None:
        return _READERS[type_name](rows).numbers()
    return rows.contiguous().view(dtype)
