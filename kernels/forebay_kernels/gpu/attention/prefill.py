"""Paged attention of sequences with several queries each, ragged, behind a prefix that is cached.

Rows are cut into tiles that begin anew with each sequence. Which sequence a tile belongs to, a
program finds by binary search, and it goes over no more keys than its own rows see, so that a short
sequence does not pay for a long one. Sequences with one query are decode's.

In batch-invariant mode all rows are computed here, in one order: tiles of keys begin at multiples
of their size and are taken one after another, each masked alike. Then nothing of a row's numbers
depends on the batch, on how a prompt was cut, or on whether it is a prompt or a decode. The price
is that a long sequence's decode is not split among programs.

Source: Dao 2023 (FlashAttention-2) alg. 1; Kwon et al. 2023 (PagedAttention) §4.
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
from forebay_kernels.gpu.attention.tile import (
    attend_tile,
    load_blocks,
    load_queries,
    start_softmax,
    store_heads,
)
from forebay_kernels.gpu.kv_write import stored_bytes
from forebay_kernels.gpu.launch_tables.attention_prefill import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant
from forebay_kernels.kv_layer import KvLayer

_SIZED_KEYS = 8192
"""What the roofline is estimated for."""


@triton.jit
def _find_sequence(query_starts_ptr, num_seqs, index, tile_rows):
    """The sequence that a tile of rows belongs to; num_seqs: to the padding behind all.

    Sequence s's tiles are counted from starts[s] // tile_rows + s on, which leaves each enough.
    """
    low = 0
    high = num_seqs + 1
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(query_starts_ptr + middle) // tile_rows + middle <= index:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def _find_tiles(
    first_key,  # that the first row sees
    first_position,
    last_position,
    window,
    TILE: tl.constexpr,
    IN_ORDER: tl.constexpr,
):
    """The tiles [first, end) of keys that some row sees, and [free_start, free_end) within, those
    that every row sees whole: they need no mask, and are taken first."""
    first = first_key // TILE
    end = tl.cdiv(last_position + 1, TILE)
    if IN_ORDER:
        return first, end, end, end
    free_start = tl.minimum(tl.cdiv(tl.maximum(last_position - window + 1, 0), TILE), end)
    return first, free_start, tl.maximum((first_position + 1) // TILE, free_start), end


@triton.jit(
    do_not_specialize=[*NUMBERS, "num_rows", "tile_rows", "least_rows"],
    do_not_specialize_on_alignment=UNALIGNED,
)
def attention_prefill(
    out_ptr,  # [T, H, D]
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
    num_rows,  # T
    num_kv_heads,
    group,
    window,
    tile_rows,  # queries of a tile: ROWS // group
    least_rows,  # sequences with fewer queries are another kernel's
    # How scores become weights
    score_scale,
    cap_scale,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    IN_ORDER: tl.constexpr,  # each tile of keys masked, one after another
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile of one sequence's rows, for all query heads of one KV head."""
    HEAD_DIM: tl.constexpr = SIZE * 2 if KIND == "int4" else SIZE
    # A sequence's last rows see the most keys, and go first.
    index, kv_head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    sequence = _find_sequence(query_starts_ptr, num_seqs, index, tile_rows)
    start_row = tl.load(query_starts_ptr + sequence)
    end_row = num_rows
    seq_len = 0
    if sequence < num_seqs:
        end_row = tl.load(query_starts_ptr + sequence + 1)
        seq_len = tl.load(seq_lens_ptr + sequence)
    first_row = start_row + (index - start_row // tile_rows - sequence) * tile_rows
    is_others = (sequence < num_seqs) & (end_row - start_row < least_rows)
    if (first_row >= end_row) | is_others:
        return

    lanes = tl.arange(0, ROWS)
    rows = first_row + lanes // group
    is_row = (lanes < tile_rows * group) & (rows < end_row)
    heads = kv_head * group + lanes % group
    # Where a sequence has no length, all its positions are before its first key.
    positions = seq_len - end_row + rows
    first_position = seq_len - end_row + first_row
    last_position = tl.minimum(first_position + tile_rows, seq_len) - 1
    num_heads = num_kv_heads * group
    offsets = (rows.to(tl.int64) * num_heads + heads) * HEAD_DIM
    q, q_high = load_queries(q_ptr, offsets, is_row, SIZE, WIDTH, KIND)
    out = tl.zeros((ROWS, WIDTH), tl.float32)
    out_high = tl.zeros((ROWS, WIDTH if KIND == "int4" else 1), tl.float32)
    highest, total = start_softmax(sinks_ptr, heads, is_row, 0, HAS_SINKS)
    table_ptr = tables_ptr + sequence.to(tl.int64) * table_stride

    first_key = tl.maximum(first_position - window + 1, 0)
    first, free_start, free_end, end = _find_tiles(
        first_key, first_position, last_position, window, TILE, IN_ORDER
    )
    if not IN_ORDER:
        keys = free_start * TILE + tl.arange(0, TILE)
        blocks = load_blocks(table_ptr, keys, keys <= last_position, BLOCK_SIZE)
        for _ in range(free_start, free_end):
            next_keys = keys + TILE
            next_blocks = load_blocks(table_ptr, next_keys, next_keys <= last_position, BLOCK_SIZE)
            out, out_high, highest, total = attend_tile(
                q,
                q_high,
                out,
                out_high,
                highest,
                total,
                keys,
                blocks,
                keys,
                keys,
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
                False,
            )
            keys = next_keys
            blocks = next_blocks
    num_free = free_end - free_start
    keys = tl.where(first < free_start, first, first + num_free) * TILE + tl.arange(0, TILE)
    blocks = load_blocks(table_ptr, keys, (keys >= first_key) & (keys <= last_position), BLOCK_SIZE)
    for step in range(first, end - num_free):
        next_keys = keys + tl.where(step + 1 == free_start, num_free + 1, 1) * TILE
        next_blocks = load_blocks(table_ptr, next_keys, next_keys <= last_position, BLOCK_SIZE)
        is_read = (keys >= first_key) & (keys <= last_position)
        is_seen = (keys[None, :] <= positions[:, None]) & (
            keys[None, :] > positions[:, None] - window
        )
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
            is_seen,
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

    share = (1.0 / tl.where(total > 0.0, total, 1.0))[:, None]
    store_heads(out_ptr, offsets, is_row, out * share, out_high * share, SIZE, KIND)


def attend_prefills(
    q: Tensor,
    layer: KvLayer,
    plan: DeviceAttentionPlan,
    rule: AttentionRule,
    out: Tensor,
    *,
    is_batch_invariant: bool = False,
) -> None:
    """Write the rows of those sequences that have several, and padding's rows behind all.

    is_batch_invariant: and the rows of those that have one. Shapes: q, out [T, H, D].
    """
    form = AttentionForm.of_call(q, layer, rule, is_batch_invariant=is_batch_invariant)
    launch, own, num_rows = form.choose(TABLE), _own_constants(form), q.shape[0]
    tile_rows = own["ROWS"] // form.group
    num_tiles = num_rows // tile_rows + plan.ragged.seq_lens_device.shape[0] + 1
    attention_prefill[(num_tiles, layer.num_kv_heads)](
        **shared_arguments(q, layer, plan.ragged, rule, out),
        num_rows=num_rows,
        tile_rows=tile_rows,
        least_rows=1 if is_batch_invariant else 2,
        **{**form.constants(launch), **own},
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def variants(shape: ModelShape) -> Iterator[Variant]:
    """The one compilation that a model reaches, with windows or without."""
    form = AttentionForm.of_shape(shape)
    signature = dict.fromkeys(("num_rows", "tile_rows", "least_rows"), "i32")
    own = _own_constants(form)
    variant = form.variant(attention_prefill, form.choose(TABLE), signature, own)
    queries_bytes = 2 * shape.num_heads * shape.head_dim * (4 if shape.dtype == "fp32" else 2)
    yield replace(
        variant,
        sized_for=f"a prompt of {_SIZED_KEYS}",
        bytes_moved=int(_SIZED_KEYS * (queries_bytes + stored_bytes(shape))),
        flops=2 * _SIZED_KEYS**2 * shape.num_heads * shape.head_dim,
    )


def _own_constants(form: AttentionForm) -> dict[str, int | bool]:
    """A tile of rows has room for all query heads of a KV head."""
    num_rows = form.choose(TABLE).tiles["ROWS"]
    return {"ROWS": max(num_rows, padded(form.group)), "IN_ORDER": form.is_batch_invariant}
