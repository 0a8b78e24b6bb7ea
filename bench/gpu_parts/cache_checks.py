"""Attention and cache writes against the reference: sizes of heads, caches, windows and caps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from forebay_kernels import ops, reference
from forebay_kernels.kv_layer import KvLayer, new_kv_layers
from gpu_parts.maker import Check, Maker

_BLOCK_SIZE = 16


def cache_checks(*, is_tiny: bool) -> Iterator[tuple[str, Check]]:
    """By name; tiny: of two cases only."""
    for case in _KV_CASES[:2] if is_tiny else _KV_CASES:
        yield f"rotate_and_write, queries, {case}", lambda m, c=case: _rotated(m, c, 0)
        yield f"rotate_and_write, cache, {case}", lambda m, c=case: _rotated(m, c, 1)
        for lens in _LENS:
            yield f"attention, {lens}, {case}", lambda m, c=case, n=lens: _attention(m, c, n)


@dataclass(frozen=True)
class _KvCase:
    """A way in which attention and cache writes differ."""

    head_dim: int
    num_heads: int
    num_kv_heads: int
    kind: str = "plain"
    window: int | None = None
    softcap: float | None = None
    has_norms: bool = False

    def __str__(self) -> str:
        extras = [self.kind]
        extras += ["window"] if self.window else []
        extras += ["softcap"] if self.softcap else []
        extras += ["norms"] if self.has_norms else []
        return f"d{self.head_dim} h{self.num_heads}/{self.num_kv_heads} {' '.join(extras)}"


_KV_CASES = (
    _KvCase(64, 9, 3),
    _KvCase(128, 8, 2, "int8"),
    _KvCase(128, 8, 2),
    _KvCase(128, 14, 2),
    _KvCase(128, 4, 2, has_norms=True),
    _KvCase(128, 8, 2, "fp8"),
    _KvCase(128, 8, 2, "int4"),
    _KvCase(128, 8, 2, window=19),
    _KvCase(256, 4, 2, window=19, softcap=50.0),
)

_LENS = {
    "decode": ((1, 1, 1), (1, 77, 300)),
    "prefill": ((33, 5, 70), (33, 45, 70)),
    "mixed": ((1, 1, 40), (50, 3, 61)),
}
"""Query lengths, and sequence lengths."""


def _rotated(maker: Maker, case: _KvCase, which: int) -> tuple[Tensor, Tensor]:
    """The queries, or all that the cache holds afterwards."""
    num_tokens, num_turned = 21, case.num_heads + case.num_kv_heads
    qkv = maker.normal(num_tokens, (num_turned + case.num_kv_heads) * case.head_dim)
    frequencies = 10_000.0 ** -(torch.arange(0, case.head_dim, 2) / case.head_dim)
    cos, sin = ops.rope_table(frequencies, 64).to(maker.dtype)
    positions, slots = maker.order(64)[:num_tokens], maker.order(4 * _BLOCK_SIZE)[:num_tokens]
    weight = maker.normal(num_turned, case.head_dim)
    results = []
    for operate, place in (
        (ops.rotate_and_write, maker.there),
        (reference.rotate_and_write, _same),
    ):
        norms = ops.HeadNorms(place(weight), 1e-6) if case.has_norms else None
        rotation = ops.Rotation(place(cos), place(sin), place(positions))
        layer = _new_layer(case, 4, maker.dtype, place(slots).device)
        queries = operate(place(qkv), norms, rotation, layer, place(slots))
        results.append((queries, torch.stack(reference.read_kv(layer)))[which])
    return results[0], results[1]


def _same(tensor: Tensor) -> Tensor:
    return tensor.clone()


def _attention(maker: Maker, case: _KvCase, lens: str) -> tuple[Tensor, Tensor]:
    query_lens, seq_lens = _LENS[lens]
    blocks_each = [-(-seq_len // _BLOCK_SIZE) for seq_len in seq_lens]
    starts = list(accumulate(blocks_each, initial=0))
    order = maker.order(starts[-1]).int()
    tables = torch.zeros(len(seq_lens), max(blocks_each), dtype=torch.int32)
    for index, number in enumerate(blocks_each):
        tables[index, :number] = order[starts[index] : starts[index] + number]
    k, v = (
        maker.normal(starts[-1] * _BLOCK_SIZE, case.num_kv_heads, case.head_dim) for _ in range(2)
    )
    layer = _new_layer(case, starts[-1], maker.dtype, torch.device("cpu"))
    reference.write_kv(k, v, layer, torch.arange(len(k)))
    q = maker.normal(sum(query_lens), case.num_heads, case.head_dim)
    rule = ops.AttentionRule(case.window, None, case.softcap)
    slots = torch.zeros(len(q), dtype=torch.int64)
    expected = reference.paged_attention(
        q, layer, ops.Ragged.of(query_lens, seq_lens, tables, slots), rule
    )
    ragged = ops.Ragged.of(query_lens, seq_lens, maker.there(tables), maker.there(slots))
    plan = ops.plan_attention(ragged, _BLOCK_SIZE, maker.dtype)
    return ops.paged_attention(maker.there(q), _there(maker, layer), plan, rule), expected


def _new_layer(case: _KvCase, num_blocks: int, dtype: torch.dtype, device: torch.device) -> KvLayer:
    shape = (num_blocks, _BLOCK_SIZE, case.num_kv_heads, case.head_dim)
    return new_kv_layers(1, shape, case.kind, dtype, device)[0]


def _there(maker: Maker, layer: KvLayer) -> KvLayer:
    scales = (layer.k_scale, layer.v_scale)
    there = [None if scale is None else maker.there(scale) for scale in scales]
    return KvLayer(maker.there(layer.k), maker.there(layer.v), there[0], there[1], layer.kind)
