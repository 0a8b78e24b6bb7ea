"""Attention over a paged cache, as share of what reading it, or multiplying, allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from cpu_parts.limits import least_seconds
from cpu_parts.row import Row
from forebay_kernels import ops
from forebay_kernels.kv_layer import KvLayer, new_kv_layers

_BLOCK_SIZE = 16
_CACHE_BYTES = 64 * 2**20
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Heads:
    """A model's."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int


HEADS = (Heads("SmolLM2-135M", 9, 3, 64), Heads("1B", 32, 8, 64), Heads("7B", 32, 8, 128))


def measure(models: Sequence[str], dtypes: Sequence[torch.dtype]) -> Iterator[Row]:
    """Decode of 1, 8 and 32 sequences, and a prompt's part of 512 tokens behind 1,536."""
    for heads in (heads for heads in HEADS if heads.name in models):
        for dtype in dtypes:
            for batch in (1, 8, 32):
                yield _time(heads, dtype, batch, query_len=1, seq_len=1024)
            yield _time(heads, dtype, 1, query_len=512, seq_len=2048)


def _time(heads: Heads, dtype: torch.dtype, batch: int, *, query_len: int, seq_len: int) -> Row:
    blocks_each = -(-seq_len // _BLOCK_SIZE)
    shape = (batch * blocks_each, _BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
    layer_bytes = 2 * batch * seq_len * heads.num_kv_heads * heads.head_dim * dtype.itemsize
    layers = new_kv_layers(max(1, _CACHE_BYTES // layer_bytes), shape, "plain", dtype, _CPU)
    for layer in layers:
        layer.k.normal_()
        layer.v.normal_()
    tables = torch.randperm(batch * blocks_each).int().view(batch, blocks_each)
    slots = tables[:, -1].long().repeat_interleave(query_len) * _BLOCK_SIZE
    ragged = ops.Ragged.of((query_len,) * batch, (seq_len,) * batch, tables, slots)
    plan = ops.plan_attention(ragged, _BLOCK_SIZE, dtype)
    q = torch.randn(batch * query_len, heads.num_heads, heads.head_dim, dtype=dtype)
    seconds = least_seconds(lambda: _attend_all(q, layers, plan), 5) / len(layers)
    # A query sees the keys before it, its own included.
    seen = query_len * seq_len - query_len * (query_len - 1) // 2
    tokens = "decode" if query_len == 1 else f"{query_len} tokens"
    return Row(
        part="attention",
        what=f"{heads.name}, {tokens} behind {seq_len - query_len}, {str(dtype)[6:]}",
        batch=batch,
        seconds=seconds,
        num_bytes=layer_bytes,
        num_operations=4 * batch * seen * heads.num_heads * heads.head_dim,
        kind="float32",
    )


def _attend_all(q: torch.Tensor, layers: Sequence[KvLayer], plan: ops.AttentionPlan) -> None:
    for layer in layers:
        ops.paged_attention(q, layer, plan)
