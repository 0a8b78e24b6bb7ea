"""What attention's kernels do with one tile of keys: read it from its pages, and fold it in.

The softmax is kept while keys go by, to the base of two: `highest` score so far, `total` of the
weights, and `out`, the weighted sum of the values, both relative to the highest. A tile that no row
sees changes none of their bits, so a row's numbers depend on the tiles that it sees alone.

A quantised cache is never dequantised: scores are multiplied by the keys' scales, weights by the
values'. In int4 a byte holds number i of a head and number i + D / 2, so there queries and `out`
come in two halves; other kinds have no use for the second.

Letters: R rows of a tile of queries, N keys of a tile, W numbers of a head as stored, padded.
Source: Dao 2023 (FlashAttention-2) alg. 1; Kwon et al. 2023 (PagedAttention) §4.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_queries(
    q_ptr,
    offsets,  # [R] int64, each row's first number
    is_row,  # [R]
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    KIND: tl.constexpr,
):
    """Each row's head, and zeros behind it: q and q_high [R, W]."""
    q = _load_part(q_ptr, offsets, is_row, 0, SIZE, WIDTH)
    if KIND == "int4":
        return q, _load_part(q_ptr, offsets, is_row, SIZE, SIZE, WIDTH)
    return q, q


@triton.jit
def _load_part(
    q_ptr, offsets, is_row, FIRST: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr
):
    columns = tl.arange(0, WIDTH)
    pointers = q_ptr + offsets[:, None] + (FIRST + columns)[None, :]
    return tl.load(pointers, mask=is_row[:, None] & (columns < SIZE)[None, :], other=0.0)


@triton.jit
def store_heads(
    out_ptr,
    offsets,  # [R] int64
    is_row,  # [R]
    out,  # [R, W]
    out_high,  # [R, W] in int4
    SIZE: tl.constexpr,
    KIND: tl.constexpr,
):
    """Put the parts of load_queries back into place."""
    _store_part(out_ptr, offsets, is_row, out, 0, SIZE)
    if KIND == "int4":
        _store_part(out_ptr, offsets, is_row, out_high, SIZE, SIZE)


@triton.jit
def _store_part(out_ptr, offsets, is_row, out, FIRST: tl.constexpr, SIZE: tl.constexpr):
    columns = tl.arange(0, out.shape[1])
    pointers = out_ptr + offsets[:, None] + (FIRST + columns)[None, :]
    is_number = is_row[:, None] & (columns < SIZE)[None, :]
    tl.store(pointers, out.to(out_ptr.dtype.element_ty), mask=is_number)


@triton.jit
def start_softmax(
    sinks_ptr,  # [H] float32, or None
    heads,  # [R]
    is_row,  # [R]
    part,  # of the keys; sinks are counted in the first
    HAS_SINKS: tl.constexpr,
):
    """highest and total [R] before any key: a sink is a score whose value is nothing."""
    if HAS_SINKS:
        sinks = tl.load(sinks_ptr + heads, mask=is_row, other=float("-inf"))
        sinks = tl.where(part == 0, sinks, float("-inf"))
        return sinks * _LOG2_E, tl.where(sinks == float("-inf"), 0.0, 1.0)
    nothing = tl.zeros(heads.shape, tl.float32)
    return nothing + float("-inf"), nothing


@triton.jit
def load_blocks(
    table_ptr,  # the sequence's blocks
    keys,  # [N] positions
    is_read,  # [N]
    BLOCK_SIZE: tl.constexpr,
):
    """The block that each key lies in: [N]. Of a key that is not read, the table is not either.

    Kernels ask for a tile's blocks while the tile before is computed: loads whose addresses come
    from other loads would be prefetched half as far ahead.
    """
    return tl.load(table_ptr + keys // BLOCK_SIZE, mask=is_read, other=0)


@triton.jit
def attend_tile(
    # What a row has so far
    q,  # [R, W]
    q_high,  # [R, W] in int4
    out,  # [R, W] float32
    out_high,  # [R, W] float32 in int4
    highest,  # [R] float32
    total,  # [R] float32
    # The tile, and without a mask all of it is read and seen
    keys,  # [N] positions
    blocks,  # [N] by load_blocks
    is_read,  # [N]
    is_seen,  # [R, N] or [1, N]
    # Where keys lie
    k_ptr,  # [P, B, K, SIZE]
    v_ptr,
    k_scale_ptr,  # [P, B, K] float32, or None
    v_scale_ptr,
    kv_head,
    num_kv_heads,
    # How scores become weights
    score_scale,
    cap_scale,
    SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KIND: tl.constexpr,
    HAS_CAP: tl.constexpr,
    IS_MASKED: tl.constexpr,
):
    """Fold one tile of keys in: out, out_high, highest, total."""
    WIDTH: tl.constexpr = q.shape[1]
    DTYPE: tl.constexpr = q.dtype
    rows = (blocks.to(tl.int64) * BLOCK_SIZE + keys % BLOCK_SIZE) * num_kv_heads + kv_head
    k = _load_heads(k_ptr, rows, is_read, SIZE, WIDTH, IS_MASKED)
    v = _load_heads(v_ptr, rows, is_read, SIZE, WIDTH, IS_MASKED)
    scores = tl.dot(q, tl.trans(_widen(k, DTYPE, KIND)), input_precision="ieee")
    if KIND == "int4":
        scores = tl.dot(q_high, tl.trans(_widen_high(k, DTYPE)), scores, input_precision="ieee")
    if k_scale_ptr is not None:
        scores *= _load_scales(k_scale_ptr, rows, is_read, IS_MASKED)[None, :]
    scores = _bend(scores, score_scale, cap_scale, HAS_CAP)
    if IS_MASKED:
        scores = tl.where(is_seen, scores, float("-inf"))

    new_highest = tl.maximum(highest, tl.max(scores, 1))
    # A row that has seen nothing yet must not subtract one infinity from another.
    level = tl.where(new_highest == float("-inf"), 0.0, new_highest)
    weights = tl.exp2(scores - level[:, None])
    faded = tl.exp2(highest - level)
    total = total * faded + tl.sum(weights, 1)
    if v_scale_ptr is not None:
        weights *= _load_scales(v_scale_ptr, rows, is_read, IS_MASKED)[None, :]
    weights = weights.to(DTYPE)
    out = tl.dot(weights, _widen(v, DTYPE, KIND), out * faded[:, None], input_precision="ieee")
    if KIND == "int4":
        out_high = tl.dot(
            weights, _widen_high(v, DTYPE), out_high * faded[:, None], input_precision="ieee"
        )
    return out, out_high, new_highest, total


@triton.jit
def _load_heads(
    ptr, rows, is_read, SIZE: tl.constexpr, WIDTH: tl.constexpr, IS_MASKED: tl.constexpr
):
    """Keys or values as they are stored: [N, W]."""
    columns = tl.arange(0, WIDTH)
    pointers = ptr + rows[:, None] * SIZE + columns[None, :]
    if IS_MASKED:
        if WIDTH == SIZE:
            return tl.load(pointers, mask=is_read[:, None], other=0.0)
        return tl.load(pointers, mask=is_read[:, None] & (columns < SIZE)[None, :], other=0.0)
    if WIDTH == SIZE:
        return tl.load(pointers)
    return tl.load(pointers, mask=(columns < SIZE)[None, :], other=0.0)


@triton.jit
def _load_scales(ptr, rows, is_read, IS_MASKED: tl.constexpr):
    """Each key's scale: [N] float32."""
    if IS_MASKED:
        return tl.load(ptr + rows, mask=is_read, other=0.0)
    return tl.load(ptr + rows)


@triton.jit
def _widen(stored, DTYPE: tl.constexpr, KIND: tl.constexpr):
    """Stored numbers as the queries', their scale not counted in; of int4 the low half."""
    if KIND == "int4":
        return ((stored & 15).to(tl.int8) - 8).to(DTYPE)
    if KIND == "fp8_bits":
        # Where the GPU cannot convert e4m3: shifted into a half it is short of 2 ** 8, exactly.
        bits = stored.to(tl.uint16)
        half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        return (half.to(tl.float16, bitcast=True) * 256.0).to(DTYPE)
    return stored.to(DTYPE)


@triton.jit
def _widen_high(stored, DTYPE: tl.constexpr):
    """The high half of int4's numbers."""
    return ((stored >> 4).to(tl.int8) - 8).to(DTYPE)


@triton.jit
def _bend(scores, score_scale, cap_scale, HAS_CAP: tl.constexpr):
    """Scores to the base of two; a cap's tanh(x) is 1 - 2 / (exp(2 x) + 1)."""
    if HAS_CAP:
        return cap_scale - 2.0 * cap_scale / (tl.exp2(scores * score_scale) + 1.0)
    return scores * score_scale
