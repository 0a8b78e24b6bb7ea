"""Paged attention of sequences that have one query each.

A program serves all query heads of one KV head over one part of a sequence's keys, so each key is
read once. Sequences with more queries are prefill's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.gpu.attention.form import (
    NUMBERS,
    UNALIGNED,
    AttentionForm,
    padded,
    shared_arguments,
)
from forebay_kernels.gpu.attention.plan import DeviceAttentionPlan
from forebay_kernels.gpu.attention.split import (
    Splits,
    choose_splits,
    find_tiles,
    new_parts,
    num_multiprocessors,
    reduce_parts,
)
from forebay_kernels.gpu.attention.tile import (
    attend_tile,
    load_blocks,
    load_queries,
    start_softmax,
    store_heads,
)
from forebay_kernels.gpu.kv_write import stored_bytes
from forebay_kernels.gpu.launch_tables.attention_decode import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant
from forebay_kernels.kv_layer import KvLayer

_SIZED_SEQS = 64
_SIZED_KEYS = 4096
"""What the roofline is estimated for."""


@triton.jit(
    do_not_specialize=[*NUMBERS, "num_rows", "num_splits", "least_keys"],
    do_not_specialize_on_alignment=UNALIGNED,
)
def attention_decode(
    # Results
    out_ptr,  # [T, H, D]
    parts_ptr,  # [S, H, N, D] float32
    highest_ptr,  # [S, H, N] float32
    total_ptr,  # [S, H, N] float32
    # What attends to what
    q_ptr,  # [T, H, D]
    k_ptr,  # [P, B, K, SIZE]
    v_ptr,
    k_scale_ptr,  # [P, B, K] float32, or None
    v_scale_ptr,
    sinks_ptr,  # [H] float32, or None
    tables_ptr,  # [S, M]
    query_starts_ptr,  # [S + 1]
    seq_lens_ptr,  # [S]
    # Sizes
    table_stride: tl.int64,
    num_seqs,
    num_rows,  # T where row s is sequence s's or padding, and else 0
    num_kv_heads,
    group,
    window,
    num_splits,  # N
    least_keys,
    # How scores become weights
    score_scale,
    cap_scale,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One part of one sequence's keys, for one KV head."""
    HEAD_DIM: tl.constexpr = SIZE * 2 if KIND == "int4" else SIZE
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    lanes = tl.arange(0, ROWS)
    is_row = lanes < group
    heads = kv_head * group + lanes
    num_heads = num_kv_heads * group

    row = sequence
    seq_len = 0
    num_query_rows = 1
    is_padding = (sequence >= tl.load(query_starts_ptr + num_seqs)) & (sequence < num_rows)
    if is_padding == 0:
        row = tl.load(query_starts_ptr + sequence)
        seq_len = tl.load(seq_lens_ptr + sequence)
        num_query_rows = tl.load(query_starts_ptr + sequence + 1) - row
    first, end, tiles = find_tiles(seq_len, window, num_splits, least_keys, TILE)
    start = first + split * tiles
    if (num_query_rows != 1) | ((start >= end) & (split > 0)):
        return

    offsets = (row.to(tl.int64) * num_heads + heads) * HEAD_DIM
    q, q_high = load_queries(q_ptr, offsets, is_row, SIZE, WIDTH, KIND)
    out = tl.zeros((ROWS, WIDTH), tl.float32)
    out_high = tl.zeros((ROWS, WIDTH if KIND == "int4" else 1), tl.float32)
    highest, total = start_softmax(sinks_ptr, heads, is_row, split, HAS_SINKS)
    table_ptr = tables_ptr + sequence.to(tl.int64) * table_stride
    first_key = seq_len - window
    keys = start * TILE + tl.arange(0, TILE)
    blocks = load_blocks(table_ptr, keys, (keys >= first_key) & (keys < seq_len), BLOCK_SIZE)
    for _ in range(start, tl.minimum(start + tiles, end)):
        next_keys = keys + TILE
        next_blocks = load_blocks(table_ptr, next_keys, next_keys < seq_len, BLOCK_SIZE)
        is_read = (keys >= first_key) & (keys < seq_len)
        out, out_high, highest, total = attend_tile(
            q,
            q_high,
            out,
            out_high,
            highest,
            total,
            keys,
            blocks,
            is_read,
            is_read[None, :],
            k_ptr,
            v_ptr,
            k_scale_ptr,
            v_scale_ptr,
            kv_head,
            num_kv_heads,
            score_scale,
            cap_scale,
            SIZE,
            BLOCK_SIZE,
            KIND,
            HAS_CAP,
            True,
        )
        keys = next_keys
        blocks = next_blocks

    if end - first <= tiles:
        # No part but this; a sequence of no length has zeros.
        share = (1.0 / tl.where(total > 0.0, total, 1.0))[:, None]
        store_heads(out_ptr, offsets, is_row, out * share, out_high * share, SIZE, KIND)
    else:
        parts = (sequence.to(tl.int64) * num_heads + heads) * num_splits + split
        tl.store(highest_ptr + parts, highest, mask=is_row)
        tl.store(total_ptr + parts, total, mask=is_row)
        store_heads(parts_ptr, parts * HEAD_DIM, is_row, out, out_high, SIZE, KIND)


def attend_decodes(
    q: Tensor,
    layer: KvLayer,
    plan: DeviceAttentionPlan,
    rule: AttentionRule,
    out: Tensor,
    splits: Splits | None = None,
) -> None:
    """Write the rows of those sequences that have one; where all have, padding's rows too.

    splits: instead of those that the batch's size asks for. Shapes: q, out [T, H, D].
    """
    form = AttentionForm.of_call(q, layer, rule, is_batch_invariant=False)
    launch, ragged = form.choose(TABLE), plan.ragged
    num_seqs = ragged.seq_lens_device.shape[0]
    num_rows = q.shape[0] if plan.is_decode_only else 0
    num_programs = max(num_seqs, num_rows)
    if splits is None:
        splits = choose_splits(
            num_programs * layer.num_kv_heads,
            ragged.block_tables.shape[1] * form.block_size,
            num_multiprocessors(q.device),
        )
    parts = new_parts(num_seqs, q, splits)
    shared = shared_arguments(q, layer, ragged, rule, out)
    attention_decode[(num_programs, layer.num_kv_heads, splits.num)](
        **shared,
        parts_ptr=parts.out,
        highest_ptr=parts.highest,
        total_ptr=parts.total,
        num_rows=num_rows,
        num_splits=splits.num,
        least_keys=splits.least_keys,
        **form.constants(launch),
        **_own_constants(form),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    if splits.num > 1:
        reduce_parts(parts, form, shared, splits)


def variants(shape: ModelShape) -> Iterator[Variant]:
    """The one compilation that a model reaches, with windows or without."""
    form = AttentionForm.of_shape(shape)
    if form.is_batch_invariant:
        return
    signature = {
        **dict.fromkeys(("parts_ptr", "highest_ptr", "total_ptr"), "*fp32"),
        **dict.fromkeys(("num_rows", "num_splits", "least_keys"), "i32"),
    }
    variant = form.variant(attention_decode, form.choose(TABLE), signature, _own_constants(form))
    yield replace(
        variant,
        sized_for=f"{_SIZED_SEQS} sequences of {_SIZED_KEYS} keys",
        bytes_moved=int(_SIZED_SEQS * _SIZED_KEYS * stored_bytes(shape)),
        flops=4 * _SIZED_SEQS * _SIZED_KEYS * shape.num_heads * shape.head_dim,
    )


def _own_constants(form: AttentionForm) -> dict[str, int]:
    return {"ROWS": padded(form.group)}
