"""Paged attention for ragged batches by torch operations alone, on any device.

A step is planned once for each window that its layers have: sequences with one query each are
gathered and attended together, longer ones with one call each. Keys that are out of a layer's
window are never gathered, as their blocks may hold something else by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.portable.quantised_kv import gather_blocks
from forebay_kernels.ragged import Ragged

_LEAST_TILE_ROWS = 256
"""Queries that share a call under a window: fewer would be many small calls."""
_MOST_SCORES = 2**24
"""64 MiB of float32: what attention with a soft cap holds of its scores at once."""


@dataclass(frozen=True)
class Span:
    """Sequences that one attention call handles: rows [start, end) of the queries.

    blocks: [num_sequences * M] int32, the blocks to gather; num_keys: keys used of each sequence;
    mask: [num_sequences or 1, 1, queries, num_keys], zero where a query sees a key and else -inf,
    or None where a plain causal triangle is meant.
    """

    start: int
    end: int
    num_sequences: int
    blocks: Tensor
    num_keys: int
    mask: Tensor | None


class AttentionPlan:
    """One step's attention; layers with the same window share its spans. slots as in Ragged."""

    def __init__(self, ragged: Ragged, block_size: int, dtype: torch.dtype) -> None:
        """dtype: the queries'."""
        self.ragged = ragged
        self.block_size = block_size
        self.dtype = dtype
        self.slots = ragged.slots
        self.num_rows = sum(ragged.query_lens)
        self._spans: dict[int | None, tuple[Span, ...]] = {}

    def spans(self, window: int | None = None) -> tuple[Span, ...]:
        """The calls of a layer with this window, planned when first asked for."""
        spans = self._spans.get(window)
        if spans is None:
            spans = (*_plan_decodes(self, window), *_plan_prefills(self, window))
            self._spans[window] = spans
        return spans


def _plan_decodes(plan: AttentionPlan, window: int | None) -> Iterator[Span]:
    """Spans over the sequences with one query each.

    They share a span while the longest has at most twice the blocks of the shortest, so that short
    sequences do not pay for long ones; the runner orders them by length.
    """
    num_decodes = plan.ragged.num_decodes
    firsts = [_first_block(plan, index, window) for index in range(num_decodes)]
    num_blocks = [_end_block(plan, index) - first for index, first in enumerate(firsts)]
    start = 0
    while start < num_decodes:
        end = start + 1
        shortest = longest = num_blocks[start]
        while end < num_decodes:
            shortest, longest = min(shortest, num_blocks[end]), max(longest, num_blocks[end])
            if longest > 2 * shortest:
                break
            end += 1
        most = max(num_blocks[start:end])
        if window is None:
            yield _decode_span(plan, start, end, most)
        else:
            yield _windowed_decode_span(plan, start, firsts[start:end], most, window)
        start = end


def _first_block(plan: AttentionPlan, index: int, window: int | None) -> int:
    """The block of the first key that a sequence's first query sees."""
    if window is None:
        return 0
    first_query = plan.ragged.seq_lens[index] - plan.ragged.query_lens[index]
    return max(0, first_query - window + 1) // plan.block_size


def _end_block(plan: AttentionPlan, index: int) -> int:
    return -(-plan.ragged.seq_lens[index] // plan.block_size)


def _decode_span(plan: AttentionPlan, start: int, end: int, num_blocks: int) -> Span:
    ragged = plan.ragged
    blocks = ragged.block_tables[start:end, :num_blocks].reshape(-1)
    seq_lens = ragged.seq_lens[start:end]
    num_keys = max(seq_lens)
    mask = None
    if end - start > 1:
        lens = torch.tensor(seq_lens, device=blocks.device).view(-1, 1, 1, 1)
        mask = _to_bias(torch.arange(num_keys, device=blocks.device) < lens, plan.dtype)
    return Span(start, end, end - start, blocks, num_keys, mask)


def _windowed_decode_span(
    plan: AttentionPlan, start: int, firsts: list[int], num_blocks: int, window: int
) -> Span:
    """Like _decode_span, with each sequence's blocks from its own first one on.

    Where one has fewer than the most, its last block stands again.
    """
    tables, device = plan.ragged.block_tables, plan.ragged.block_tables.device
    end = start + len(firsts)
    first = torch.tensor(firsts, device=device).unsqueeze(1)
    seq_lens = torch.tensor(plan.ragged.seq_lens[start:end], device=device).unsqueeze(1)
    columns = first + torch.arange(num_blocks, device=device)
    columns = torch.minimum(columns, (seq_lens - 1) // plan.block_size)
    blocks = tables[start:end].gather(1, columns).reshape(-1)
    ends = seq_lens - first * plan.block_size
    num_keys = num_blocks * plan.block_size
    keys = torch.arange(num_keys, device=device)
    is_seen = (keys < ends) & (keys >= ends - window)
    return Span(
        start, end, end - start, blocks, num_keys, _to_bias(is_seen, plan.dtype)[:, None, None]
    )


def _plan_prefills(plan: AttentionPlan, window: int | None) -> Iterator[Span]:
    """Spans over the sequences with several queries; long ones in tiles where a window bounds
    what each tile sees."""
    ragged = plan.ragged
    row = num_decodes = ragged.num_decodes
    for index in range(num_decodes, len(ragged.query_lens)):
        query_len, seq_len = ragged.query_lens[index], ragged.seq_lens[index]
        tile = query_len if window is None else max(window, _LEAST_TILE_ROWS)
        for start in range(0, query_len, tile):
            end = min(start + tile, query_len)
            queries = range(seq_len - query_len + start, seq_len - query_len + end)
            yield _prefill_span(plan, index, row + start, queries, window)
        row += query_len


def _prefill_span(
    plan: AttentionPlan, index: int, row: int, queries: range, window: int | None
) -> Span:
    """One call for queries at consecutive positions of one sequence."""
    device, block_size = plan.ragged.block_tables.device, plan.block_size
    first = 0 if window is None else max(0, queries.start - window + 1) // block_size
    blocks = plan.ragged.block_tables[index, first : -(-queries.stop // block_size)]
    num_keys = queries.stop - first * block_size
    mask = None
    if num_keys != len(queries) or (window is not None and num_keys > window):
        keys = torch.arange(num_keys, device=device)
        own = keys[num_keys - len(queries) :, None]
        is_seen = keys <= own
        if window is not None:
            is_seen &= keys > own - window
        mask = _to_bias(is_seen, plan.dtype)[None, None]
    return Span(row, row + len(queries), 1, blocks, num_keys, mask)


def _to_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as what is added to scores: once a step rather than once a layer."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


def paged_attention(
    q: Tensor, layer: KvLayer, plan: AttentionPlan, rule: AttentionRule = FULL_ATTENTION
) -> Tensor:
    """Attend each query token to its sequence's cached keys and values.

    Rows of q past the plan's last are padding and give zeros.
    Shapes: q, out [T, H, D].
    Source: Kwon et al. 2023 (PagedAttention) §4.
    """
    spans = plan.spans(rule.window)
    parts = [_attend(q[s.start : s.end], layer, s, rule) for s in spans]
    if plan.num_rows < q.shape[0]:
        parts.append(q.new_zeros(q.shape[0] - plan.num_rows, *q.shape[1:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(q: Tensor, layer: KvLayer, span: Span, rule: AttentionRule) -> Tensor:
    """One call for one span: q [rows, H, D], out [rows, H, D]."""
    num_heads, head_dim = q.shape[1:]
    shape = (span.num_sequences, -1, layer.num_kv_heads, head_dim)
    gathered = gather_blocks(layer, span.blocks, q.dtype)
    keys, values = (each.view(shape)[:, : span.num_keys] for each in gathered)
    queries = q.reshape(span.num_sequences, -1, num_heads, head_dim)
    return attend(queries, keys, values, rule, span.mask).reshape(q.shape)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rule: AttentionRule,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention over keys that are in place; without a mask, several queries see a triangle.

    Shapes: queries [S, R, H, D]; keys, values [S, N, K, D]; mask as in Span; out [S, R, H, D].
    """
    if rule.softcap is not None or rule.sinks is not None:
        return _attend_in_tiles(queries, keys, values, mask, rule)
    out = functional.scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None and queries.shape[1] > 1,
        scale=rule.scale,
        enable_gqa=queries.shape[2] != keys.shape[2],
    )
    return out.transpose(1, 2)


def _attend_in_tiles(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, rule: AttentionRule
) -> Tensor:
    """Attention with a soft cap or sinks, which torch's own has not, a tile of queries at a time.

    Shapes: queries [S, R, H, D]; keys, values [S, N, K, D]; mask as in Span; out [S, R, H, D].
    """
    num_rows, num_keys = queries.shape[1], keys.shape[1]
    if mask is None and num_rows > 1:
        is_seen = torch.ones(num_rows, num_keys, dtype=torch.bool, device=queries.device).tril()
        mask = _to_bias(is_seen, torch.float32)[None, None]
    row_scores = queries.shape[0] * queries.shape[2] * num_keys
    tile = max(1, _MOST_SCORES // row_scores)
    tiles = []
    for start in range(0, num_rows, tile):
        rows = slice(start, start + tile)
        bias = None if mask is None else mask[:, :, rows]
        tiles.append(_attend_tile(queries[:, rows], keys, values, bias, rule))
    return tiles[0] if len(tiles) == 1 else torch.cat(tiles, 1)


def _attend_tile(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, rule: AttentionRule
) -> Tensor:
    num_seqs, num_rows, num_heads, head_dim = queries.shape
    num_kv_heads = keys.shape[2]
    scale = rule.scale if rule.scale is not None else head_dim**-0.5
    grouped = queries.transpose(1, 2).reshape(num_seqs, num_kv_heads, -1, head_dim)
    scores = grouped @ keys.permute(0, 2, 3, 1)
    scores = scores.float().mul_(scale)
    if rule.softcap is not None:
        scores = scores.div_(rule.softcap).tanh_().mul_(rule.softcap)
    scores = scores.view(num_seqs, num_heads, num_rows, -1)
    if bias is not None:
        scores += bias
    weights = _weigh(scores, rule.sinks).to(values.dtype).view(*grouped.shape[:3], -1)
    out = (weights @ values.transpose(1, 2)).view(num_seqs, num_heads, num_rows, head_dim)
    return out.transpose(1, 2)


def _weigh(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """What each key gets of the weights, a sink's part left out. Shapes: [S, H, R, N]."""
    if sinks is None:
        return scores.softmax(-1)
    column = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat((scores, column), -1).softmax(-1)[..., :-1].contiguous()
