"""How a sequence's keys are split among programs, and the kernel that puts the parts together.

A batch too small to fill the GPU is split along its keys. How many parts there may be is fixed by
the number of sequences and by the width of their tables; how many a sequence has, each program
finds from its length on the device. A sequence with one part has its result from the program that
computed the part, and nothing to put together.

Source: Dao et al. 2023 (Flash-Decoding).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.attention.form import UNALIGNED, AttentionForm, padded
from forebay_kernels.gpu.launch_tables.attention_decode import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Launch, Variant

_MOST_SPLITS = 128
_LEAST_KEYS = 256
"""Keys below which a part costs more than it saves."""
_BALANCED_KEYS = 4096
"""Keys above which a sequence is split even where the GPU is full, as the others may be short."""
_FILLED = 2
"""Programs a multiprocessor that fill the GPU."""
_BALANCED = 8
"""Programs a multiprocessor from which on the longest sequence holds nobody up for long."""
_INTERPRETED_SMS = 16
_LAUNCH = Launch({"CHUNK": 32}, num_warps=4, num_stages=1)


@dataclass(frozen=True)
class Splits:
    """num: parts that a sequence has at most; least_keys: that each part has, if not the last."""

    num: int
    least_keys: int = _LEAST_KEYS


@dataclass(frozen=True)
class Parts:
    """What programs leave for the reduction.

    Shapes: out [S, H, N, D], highest and total [S, H, N], all float32; N parts.
    """

    out: Tensor
    highest: Tensor
    total: Tensor


def choose_splits(num_programs: int, most_keys: int, num_sms: int) -> Splits:
    """Parts for a batch that has so many programs unsplit: one for each sequence and KV head.

    most_keys: that a sequence's table has room for. All three stay the same in a captured graph.
    """
    to_fill = -(-_FILLED * num_sms // num_programs)
    to_balance = min(-(-most_keys // _BALANCED_KEYS), -(-_BALANCED * num_sms // num_programs))
    num = min(max(to_fill, to_balance), -(-most_keys // _LEAST_KEYS), _MOST_SPLITS)
    return Splits(max(1, num), max(_LEAST_KEYS, _BALANCED_KEYS // to_fill))


@cache
def num_multiprocessors(device: torch.device) -> int:
    """Of a GPU; where Triton interprets, some."""
    if device.type != "cuda":
        return _INTERPRETED_SMS
    return torch.cuda.get_device_properties(device).multi_processor_count


def new_parts(num_seqs: int, q: Tensor, splits: Splits) -> Parts:
    """Room for the parts: none where there is but one."""
    num_parts = splits.num if splits.num > 1 else 0
    shape = (num_seqs, q.shape[1], num_parts)
    out = torch.empty(*shape, q.shape[2], dtype=torch.float32, device=q.device)
    highest, total = torch.empty(2, *shape, dtype=torch.float32, device=q.device)
    return Parts(out, highest, total)


@triton.jit
def find_tiles(
    seq_len,
    window,
    num_splits,
    least_keys,
    tile_keys,
):
    """The first tile of keys that a sequence's last token sees, the one behind its last, and how
    many tiles each of its parts has."""
    first = tl.maximum(seq_len - window, 0) // tile_keys
    end = tl.cdiv(seq_len, tile_keys)
    tiles = tl.maximum(tl.cdiv(end - first, num_splits), tl.cdiv(least_keys, tile_keys))
    return first, end, tiles


@triton.jit(
    do_not_specialize=["window", "num_splits", "least_keys", "tile_keys"],
    do_not_specialize_on_alignment=UNALIGNED,
)
def attention_reduce(
    out_ptr,  # [T, H, D]
    parts_ptr,  # [S, H, N, D] float32, relative to highest
    highest_ptr,  # [S, H, N] float32, to the base of two
    total_ptr,  # [S, H, N] float32
    query_starts_ptr,  # [S + 1]
    seq_lens_ptr,  # [S]
    window,
    num_splits,  # N
    least_keys,
    tile_keys,  # the TILE of the kernel that left the parts
    HEAD_DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Put one head of one sequence together from its parts, where it has more than one."""
    sequence, head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    row = tl.load(query_starts_ptr + sequence)
    seq_len = tl.load(seq_lens_ptr + sequence)
    has_one_row = tl.load(query_starts_ptr + sequence + 1) - row == 1
    first, end, tiles = find_tiles(seq_len, window, num_splits, least_keys, tile_keys)
    num_parts = tl.cdiv(end - first, tiles)
    if has_one_row and num_parts > 1:
        columns = tl.arange(0, WIDTH)
        own = (sequence.to(tl.int64) * num_heads + head) * num_splits
        highest = float("-inf")
        total = 0.0
        out = tl.zeros((WIDTH,), tl.float32)
        for start in range(0, num_parts, CHUNK):
            parts = start + tl.arange(0, CHUNK)
            is_part = parts < num_parts
            part_highest = tl.load(highest_ptr + own + parts, is_part, float("-inf"))
            part_total = tl.load(total_ptr + own + parts, is_part, 0.0)
            is_number = is_part[:, None] & (columns < HEAD_DIM)[None, :]
            pointers = parts_ptr + (own + parts)[:, None] * HEAD_DIM + columns[None, :]
            part_out = tl.load(pointers, is_number, 0.0)
            new_highest = tl.maximum(highest, tl.max(part_highest, 0))
            faded = tl.exp2(highest - new_highest)
            weights = tl.exp2(part_highest - new_highest)
            total = total * faded + tl.sum(part_total * weights, 0)
            out = out * faded + tl.sum(part_out * weights[:, None], 0)
            highest = new_highest
        out_row = (row.to(tl.int64) * num_heads + head) * HEAD_DIM
        tl.store(
            out_ptr + out_row + columns,
            (out / total).to(out_ptr.dtype.element_ty),
            mask=columns < HEAD_DIM,
        )


def reduce_parts(
    parts: Parts, form: AttentionForm, shared: Mapping[str, Any], splits: Splits
) -> None:
    """Write the result of each sequence with one query and several parts.

    shared: form.shared_arguments.
    """
    names = ("out_ptr", "query_starts_ptr", "seq_lens_ptr", "window")
    attention_reduce[parts.out.shape[:2]](
        parts_ptr=parts.out,
        highest_ptr=parts.highest,
        total_ptr=parts.total,
        num_splits=splits.num,
        least_keys=splits.least_keys,
        tile_keys=form.choose(TABLE).tiles["TILE"],
        **{name: shared[name] for name in names},
        **_constants(form),
        num_warps=_LAUNCH.num_warps,
        num_stages=_LAUNCH.num_stages,
    )


def variants(shape: ModelShape) -> Iterator[Variant]:
    """The one compilation that a model reaches; none where nothing is split."""
    form = AttentionForm.of_shape(shape)
    if form.is_batch_invariant:
        return
    pointers = ("parts_ptr", "highest_ptr", "total_ptr")
    yield Variant(
        f"attention_reduce/d{form.head_dim}-{form.dtype}",
        attention_reduce,
        {
            "out_ptr": f"*{form.dtype}",
            **dict.fromkeys(pointers, "*fp32"),
            **dict.fromkeys(("query_starts_ptr", "seq_lens_ptr"), "*i32"),
            **dict.fromkeys(("window", "num_splits", "least_keys", "tile_keys"), "i32"),
        },
        _constants(form),
        _LAUNCH,
        frozenset(("out_ptr", "parts_ptr")),
    )


def _constants(form: AttentionForm) -> dict[str, int]:
    return {
        "HEAD_DIM": form.head_dim,
        "WIDTH": padded(form.head_dim),
        **_LAUNCH.tiles,
    }
