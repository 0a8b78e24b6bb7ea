"""Batches for tests of attention: sequences over pages in random order, and what lies behind them.

Where a sequence ends, its table names blocks that there are none of: a kernel that looks one up
reads far outside of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_kernels import ops, reference
from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.portable.kv_write import write_kv
from forebay_kernels.ragged import Ragged

STALE_BLOCKS = (-(2**31), -1, 2**31 - 1)
_SPARE_BLOCKS = 3


@dataclass(frozen=True)
class Heads:
    """How a model attends: query heads, KV heads, numbers of a head."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass
class AttentionBatch:
    """q: [T, H, D], the sequences' rows and padding behind them."""

    ragged: Ragged
    layer: KvLayer
    q: Tensor

    def pad(self, num_rows: int) -> None:
        """Put rows behind that are nobody's, and hold what nobody may look at."""
        nothing = self.q.new_full((num_rows, *self.q.shape[1:]), torch.nan)
        self.q = torch.cat((self.q, nothing))

    def attend(self, rule: AttentionRule, *, is_batch_invariant: bool = False) -> Tensor:
        """By the device's kernels."""
        plan = ops.plan_attention(self.ragged, self.layer.k.shape[1], self.q.dtype)
        with ops.batch_invariant(is_batch_invariant):
            return ops.paged_attention(self.q, self.layer, plan, rule)

    def expected(self, rule: AttentionRule) -> Tensor:
        """By the reference, with zeros for padding."""
        num_rows, tables = sum(self.ragged.query_lens), self.ragged.block_tables
        known = tables.where((tables >= 0) & (tables < len(self.layer.k)), 0)
        ragged = Ragged.of(self.ragged.query_lens, self.ragged.seq_lens, known, self.ragged.slots)
        out = torch.zeros_like(self.q)
        out[:num_rows] = reference.paged_attention(self.q[:num_rows], self.layer, ragged, rule)
        return out


def build_batch(
    spans: Sequence[tuple[int, int]],
    heads: Heads,
    *,
    block_size: int = 16,
    kind: str = "plain",
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> AttentionBatch:
    """spans: each sequence's query tokens and tokens in all."""
    num_blocks = [-(-seq_len // block_size) for _, seq_len in spans]
    num_all = sum(num_blocks) + _SPARE_BLOCKS
    order = iter(torch.randperm(num_all).tolist())
    tables = torch.tensor(STALE_BLOCKS, dtype=torch.int32).repeat(len(spans), max(num_blocks))
    for table, count in zip(tables, num_blocks, strict=True):
        table[:count] = torch.tensor([next(order) for _ in range(count)])
    place = torch.device(device)
    layer = new_filled_layer((num_all, block_size, heads.num_kv_heads, heads.head_dim), kind, dtype)
    num_rows = sum(query_len for query_len, _ in spans)
    q = torch.randn(num_rows, heads.num_heads, heads.head_dim).to(dtype)
    query_lens, seq_lens = zip(*spans, strict=True)
    # Attention does not read slots.
    slots = torch.zeros(num_rows, dtype=torch.int64, device=place)
    return AttentionBatch(
        Ragged.of(query_lens, seq_lens, tables[:, : max(num_blocks) + 3].to(place), slots),
        _moved(layer, place),
        q.to(place),
    )


def new_filled_layer(shape: tuple[int, int, int, int], kind: str, dtype: torch.dtype) -> KvLayer:
    """A layer of random keys and values."""
    layer = ops.new_kv_layers(1, shape, kind, dtype, torch.device("cpu"))[0]
    num_slots = shape[0] * shape[1]
    k, v = (torch.randn(num_slots, *shape[2:]).to(dtype) for _ in range(2))
    write_kv(k, v, layer, torch.arange(num_slots))
    return layer


def _moved(layer: KvLayer, device: torch.device) -> KvLayer:
    k_scale, v_scale = (
        None if scale is None else scale.to(device) for scale in (layer.k_scale, layer.v_scale)
    )
    return KvLayer(layer.k.to(device), layer.v.to(device), k_scale, v_scale, layer.kind)
