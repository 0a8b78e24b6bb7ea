"""ggml's storage types, turned into floating point.

Works in pieces that stay in a processor's cache, by torch operations that all cores share.
Source: ggml-quants.c and ggml-common.h of ggml, for the layout of blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from forebay_budget.ggml import GGML_TYPES_BY_NAME
from forebay_runtime.loading import k_quants
from forebay_runtime.loading.k_quants import halves

BLOCK_ELEMENTS = 32
_PIECE_ELEMENTS = 2**18
"""1 MiB of float32: read, unpacked and scaled before the next piece evicts it."""


def dequantise(rows: Tensor, type_name: str, out: Tensor) -> None:
    """Convert raw rows into out, whose dtype may be any floating one.

    Shapes: rows [R, bytes of a row] uint8; out [R, elements of a row], or [R] for a vector.
    Raises: KeyError for a type that is not in READABLE_TYPES.
    """
    unpack = _UNPACK[type_name]
    rows_per_piece = max(1, _PIECE_ELEMENTS * rows.shape[0] // out.numel())
    for source, target in zip(rows.split(rows_per_piece), out.split(rows_per_piece), strict=True):
        target.copy_(unpack(source).view(target.shape))


def dequantise_columns(
    rows: Tensor, type_name: str, columns: slice, num_columns: int, out: Tensor
) -> None:
    """Convert some columns of raw rows into out; only the blocks that hold them are unpacked.

    Shapes: rows [R, bytes of num_columns] uint8; out [R, columns.stop - columns.start].
    """
    kind = GGML_TYPES_BY_NAME[type_name]
    first, stop = columns.start // kind.block_elements, -(-columns.stop // kind.block_elements)
    blocks = rows[:, first * kind.block_bytes : stop * kind.block_bytes]
    skipped = columns.start - first * kind.block_elements
    rows_per_piece = max(1, _PIECE_ELEMENTS // num_columns)
    unpack = _UNPACK[type_name]
    for source, target in zip(blocks.split(rows_per_piece), out.split(rows_per_piece), strict=True):
        wide = unpack(source).view(len(target), -1)
        target.copy_(wide[:, skipped : skipped + target.shape[1]])


def _unpack_plain(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows.contiguous().view(dtype)


def _unpack_q8_0(rows: Tensor) -> Tensor:
    """Blocks of a float16 scale and 32 signed bytes."""
    blocks = rows.reshape(-1, 2 + BLOCK_ELEMENTS)
    return blocks[:, 2:].view(torch.int8) * halves(blocks, 0)


def _unpack_q4_0(rows: Tensor) -> Tensor:
    """Blocks of a float16 scale and 16 bytes: scale * (nibble - 8)."""
    blocks = rows.reshape(-1, 2 + BLOCK_ELEMENTS // 2)
    return _nibbles(blocks[:, 2:]).sub_(8).mul_(halves(blocks, 0))


def _unpack_q4_1(rows: Tensor) -> Tensor:
    """Blocks of a float16 scale, a float16 minimum and 16 bytes: scale * nibble + minimum."""
    blocks = rows.reshape(-1, 4 + BLOCK_ELEMENTS // 2)
    return _nibbles(blocks[:, 4:]).mul_(halves(blocks, 0)).add_(halves(blocks, 2))


def _unpack_q5_0(rows: Tensor) -> Tensor:
    """Blocks of a float16 scale, 32 high bits and 16 bytes: scale * (five bits - 16)."""
    blocks = rows.reshape(-1, 6 + BLOCK_ELEMENTS // 2)
    return _five_bits(blocks[:, 2:6], blocks[:, 6:]).sub_(16).mul_(halves(blocks, 0))


def _unpack_q5_1(rows: Tensor) -> Tensor:
    """Blocks of a float16 scale, a float16 minimum, 32 high bits and 16 bytes."""
    blocks = rows.reshape(-1, 8 + BLOCK_ELEMENTS // 2)
    numbers = _five_bits(blocks[:, 4:8], blocks[:, 8:])
    return numbers.mul_(halves(blocks, 0)).add_(halves(blocks, 2))


_IQ4_NL_VALUES = torch.tensor(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
    dtype=torch.float32,
)


def _unpack_iq4_nl(rows: Tensor) -> Tensor:
    """Blocks of a float16 scale and 16 bytes: scale * one of 16 values."""
    blocks = rows.reshape(-1, 2 + BLOCK_ELEMENTS // 2)
    packed = blocks[:, 2:]
    nibbles = torch.cat((packed & 15, packed >> 4), -1).int()
    return _IQ4_NL_VALUES[nibbles].mul_(halves(blocks, 0))


def _nibbles(packed: Tensor) -> Tensor:
    """The low nibbles, then the high ones, as float32. Shapes: packed [N, 16]; out [N, 32]."""
    out = torch.empty(packed.shape[0], BLOCK_ELEMENTS)
    out[:, : BLOCK_ELEMENTS // 2] = packed & 15
    out[:, BLOCK_ELEMENTS // 2 :] = packed >> 4
    return out


_BITS = torch.arange(8, dtype=torch.uint8)


def _five_bits(high: Tensor, packed: Tensor) -> Tensor:
    """Nibbles with a fifth bit each. Shapes: high [N, 4]; packed [N, 16]; out [N, 32] float32."""
    fifth = (high.unsqueeze(-1) >> _BITS) & 1
    return _nibbles(packed).add_(fifth.flatten(1), alpha=16)


_UNPACK: dict[str, Callable[[Tensor], Tensor]] = {
    "F32": _unpack_plain(torch.float32),
    "F16": _unpack_plain(torch.float16),
    "BF16": _unpack_plain(torch.bfloat16),
    "Q8_0": _unpack_q8_0,
    "Q6_K": k_quants.unpack_q6_k,
    "Q5_K": k_quants.unpack_q5_k,
    "Q5_1": _unpack_q5_1,
    "Q5_0": _unpack_q5_0,
    "Q4_K": k_quants.unpack_q4_k,
    "Q4_1": _unpack_q4_1,
    "Q4_0": _unpack_q4_0,
    "IQ4_NL": _unpack_iq4_nl,
    "Q3_K": k_quants.unpack_q3_k,
    "Q2_K": k_quants.unpack_q2_k,
}

READABLE_TYPES = tuple(_UNPACK)
