"""The operations in a form whose numbers for a token depend on that token and what it sees alone.

The fast forms choose their order of summation by the number of rows, so a token's last bits differ
by who shares its batch, and by how its prompt was cut. In here every product has the same shape,
whatever the batch: a tile of few rows. All else is computed row by row where the length of a call
could show, and attention query by query over exactly the keys that it sees. That costs speed, so
it is on only within `batch_invariant`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.portable.attention import AttentionPlan, attend
from forebay_kernels.portable.quantised_kv import gather_blocks

TILE_ROWS = 16
"""Rows of every product: fewer would read the weights too often for a prompt, more would make a
single request's decode steps compute too much in vain."""
_VECTOR = 64
"""Numbers that vector code takes at a time, at most; what is left over goes another way."""
_MOST_UNSPLIT = 32768
"""Numbers up to which an elementwise operation is not split among threads."""

Inputs = ParamSpec("Inputs")

_is_on: ContextVar[bool] = ContextVar("batch_invariant", default=False)


@contextmanager
def batch_invariant(is_on: bool) -> Iterator[None]:
    """Let the operations of this thread take their batch-invariant form meanwhile."""
    token = _is_on.set(is_on)
    try:
        yield
    finally:
        _is_on.reset(token)


def is_on() -> bool:
    """Shall operations take their batch-invariant form?"""
    return _is_on.get()


def in_tiles(operation: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """operation over rows [T, …] in tiles of TILE_ROWS, the last one filled up with zeros."""
    num_rows = rows[0].shape[0]
    padding = -num_rows % TILE_ROWS
    if padding:
        rows = tuple(functional.pad(each, (0, 0, 0, padding)) for each in rows)
    tiles = zip(*(each.split(TILE_ROWS) for each in rows), strict=True)
    parts = [operation(*tile) for tile in tiles]
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[:num_rows]


def by_rows(operation: Callable[Inputs, Tensor], num_split: int = 1) -> Callable[Inputs, Tensor]:
    """Make an operation on rows take few of them at a time within batch_invariant.

    num_split: the first so many arguments have a row for each token; the others are for all.
    """

    @wraps(operation)
    def run(*args: Inputs.args, **kwargs: Inputs.kwargs) -> Tensor:
        if not _is_on.get():
            return operation(*args, **kwargs)
        return _run_by_rows(partial(operation, **kwargs), args, num_split)

    return run


def _run_by_rows(operation: Callable[..., Tensor], args: Sequence[Any], num_split: int) -> Tensor:
    rows, rest = args[:num_split], args[num_split:]
    num_rows = _rows_a_call(rows[0].shape[1:].numel())
    if len(rows[0]) <= num_rows:
        return operation(*args)
    parts = zip(*(each.split(num_rows) for each in rows), strict=True)
    return torch.cat([operation(*part, *rest) for part in parts])


def _rows_a_call(width: int) -> int:
    """Rows of so many numbers that one call computes no other than one at a time."""
    return 1 if width % _VECTOR else max(1, _MOST_UNSPLIT // width)


def paged_attention(q: Tensor, layer: KvLayer, plan: AttentionPlan, rule: AttentionRule) -> Tensor:
    """As attention.paged_attention, one query at a time."""
    out = torch.zeros_like(q)
    block_size, ragged, row = layer.k.shape[1], plan.ragged, 0
    for index, (query_len, seq_len) in enumerate(
        zip(ragged.query_lens, ragged.seq_lens, strict=True)
    ):
        first_query = seq_len - query_len
        first_block = _first_key(first_query, rule) // block_size
        blocks = ragged.block_tables[index, first_block : -(-seq_len // block_size)]
        gathered = gather_blocks(layer, blocks, q.dtype)
        keys, values = (each.flatten(0, 1) for each in gathered)
        offset = first_block * block_size
        for position in range(first_query, seq_len):
            seen = slice(_first_key(position, rule) - offset, position + 1 - offset)
            # Copied where it does not begin its memory: kernels look at how data is aligned.
            out[row] = attend(
                q[row].clone()[None, None], _own(keys[seen])[None], _own(values[seen])[None], rule
            )
            row += 1
    return out


def _first_key(position: int, rule: AttentionRule) -> int:
    return 0 if rule.window is None else max(0, position - rule.window + 1)


def _own(rows: Tensor) -> Tensor:
    return rows if rows.storage_offset() == 0 else rows.clone()
