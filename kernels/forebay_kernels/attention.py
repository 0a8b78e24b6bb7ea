"""Paged attention for ragged batches by torch operations alone, on any device.

A step is planned once and the plan used in every layer: sequences with one query each are gathered
and attended together, longer ones with one call each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.ragged import Ragged


@dataclass(frozen=True)
class Span:
    """Sequences that one attention call handles: rows [start, end) of the queries.

    blocks: [num_sequences * M] int32, the blocks to gather; seq_len: keys used of each sequence;
    mask: [num_sequences or 1, 1, queries, seq_len], zero where a query sees a key and else -inf, or
    None where a plain causal triangle is meant.
    """

    start: int
    end: int
    num_sequences: int
    blocks: Tensor
    seq_len: int
    mask: Tensor | None


@dataclass(frozen=True)
class AttentionPlan:
    """One step's attention, the same for all layers; slots as in Ragged."""

    spans: tuple[Span, ...]
    slots: Tensor


def plan_attention(ragged: Ragged, block_size: int, dtype: torch.dtype) -> AttentionPlan:
    """Split a batch into spans; dtype is the queries'.

    Decodes share a span while the longest has at most twice the blocks of the shortest, so that
    short sequences do not pay for long ones; the runner orders them by length.
    """
    spans = []
    num_decodes = ragged.num_decodes
    num_blocks = [-(-seq_len // block_size) for seq_len in ragged.seq_lens]
    start = 0
    while start < num_decodes:
        end = start + 1
        shortest = longest = num_blocks[start]
        while end < num_decodes:
            shortest, longest = min(shortest, num_blocks[end]), max(longest, num_blocks[end])
            if longest > 2 * shortest:
                break
            end += 1
        spans.append(_decode_span(ragged, start, end, max(num_blocks[start:end]), dtype))
        start = end
    row = num_decodes
    for index in range(num_decodes, len(ragged.query_lens)):
        spans.append(_prefill_span(ragged, index, row, num_blocks[index], dtype))
        row = spans[-1].end
    return AttentionPlan(tuple(spans), ragged.slots)


def _to_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as what is added to scores: once a step rather than once a layer."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


def _decode_span(ragged: Ragged, start: int, end: int, num_blocks: int, dtype: torch.dtype) -> Span:
    blocks = ragged.block_tables[start:end, :num_blocks].reshape(-1)
    seq_lens = ragged.seq_lens[start:end]
    seq_len = max(seq_lens)
    mask = None
    if end - start > 1:
        lens = torch.tensor(seq_lens, device=blocks.device).view(-1, 1, 1, 1)
        mask = _to_bias(torch.arange(seq_len, device=blocks.device) < lens, dtype)
    return Span(start, end, end - start, blocks, seq_len, mask)


def _prefill_span(
    ragged: Ragged, index: int, row: int, num_blocks: int, dtype: torch.dtype
) -> Span:
    query_len, seq_len = ragged.query_lens[index], ragged.seq_lens[index]
    blocks = ragged.block_tables[index, :num_blocks]
    mask = None
    if seq_len != query_len:
        positions = torch.arange(seq_len, device=blocks.device)
        is_seen = positions <= positions[seq_len - query_len :, None]
        mask = _to_bias(is_seen, dtype).view(1, 1, query_len, seq_len)
    return Span(row, row + query_len, 1, blocks, seq_len, mask)


def paged_attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, plan: AttentionPlan) -> Tensor:
    """Attend each query token to its sequence's cached keys and values.

    Rows of q past the plan's last are padding and give zeros.
    Shapes: q [T, H, D]; k_cache, v_cache [P, B, K, D]; out [T, H, D].
    Source: Kwon et al. 2023 (PagedAttention) §4.
    """
    parts = [_attend(q[s.start : s.end], k_cache, v_cache, s) for s in plan.spans]
    num_rows = plan.spans[-1].end if plan.spans else 0
    if num_rows < q.shape[0]:
        parts.append(q.new_zeros(q.shape[0] - num_rows, *q.shape[1:]))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(q: Tensor, k_cache: Tensor, v_cache: Tensor, span: Span) -> Tensor:
    """One call for one span: q [rows, H, D], out [rows, H, D]."""
    num_heads, head_dim = q.shape[1:]
    num_kv_heads = k_cache.shape[2]
    shape = (span.num_sequences, -1, num_kv_heads, head_dim)
    keys = torch.index_select(k_cache, 0, span.blocks).view(shape)[:, : span.seq_len]
    values = torch.index_select(v_cache, 0, span.blocks).view(shape)[:, : span.seq_len]
    queries = q.reshape(span.num_sequences, -1, num_heads, head_dim)
    out = functional.scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=span.mask,
        is_causal=span.mask is None and queries.shape[1] > 1,
        enable_gqa=num_heads != num_kv_heads,
    )
    return out.transpose(1, 2).reshape(q.shape)
