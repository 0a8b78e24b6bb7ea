"""Decode attention: how near it comes to reading the cache at the memory's rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_kernels.kv_layer import KvLayer, new_kv_layers
from gpu_parts.figure import Figure
from gpu_parts.models import config_of
from gpu_parts.problems import Problems
from gpu_parts.rates import COPY
from gpu_parts.run import Run
from gpu_parts.timing import seconds_of

BLOCK_SIZE = 16
NUM_LAYERS = 4
"""Of a cache each, so that a layer finds nothing of its own in L2."""


@dataclass(frozen=True)
class _Case:
    model: str
    kind: str
    num_seqs: int
    least: float | None = None


_CASES = (
    _Case("Llama-3.1-8B", "plain", 64, 0.75),
    _Case("Llama-3.1-8B", "plain", 8, 0.75),
    _Case("Llama-3.1-8B", "plain", 1, 0.75),
    _Case("Qwen3-0.6B", "plain", 64, 0.75),
    _Case("SmolLM2-135M", "plain", 64, 0.75),
    _Case("Llama-3.1-8B", "fp8", 64),
    _Case("Llama-3.1-8B", "int8", 64),
    _Case("Llama-3.1-8B", "int4", 64),
)


def measure(run: Run) -> Iterator[Figure]:
    """Batches of several sizes over a cache of the same size."""
    problems = Problems()
    for case in _CASES:
        if run.is_tiny:
            case = replace(case, num_seqs=min(case.num_seqs, 2))
        cache = "" if case.kind == "plain" else f" in {case.kind}"
        name = f"decode attention of {case.model}, {case.num_seqs} sequences"
        with problems.of(f"{name}{cache}"):
            num_bytes, seconds = _time(run, case)
            what = f"{name}, {num_bytes / 2**30:.2g} GiB{cache}"
            yield Figure(what, seconds * 1e6, "us")
            share = num_bytes / seconds / 1e9 / run.known[COPY]
            yield Figure(f"{what}, of copy bandwidth", share, "share", least=case.least)
    problems.settle()


def _time(run: Run, case: _Case) -> tuple[int, float]:
    """The cache's bytes that are read, and the seconds that takes."""
    config = config_of(case.model, is_tiny=run.is_tiny)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["head_dim"]
    num_bytes = {"plain": run.dtype.itemsize, "fp8": 1, "int8": 1, "int4": 0.5}[case.kind]
    token_bytes = int(2 * kv_heads * head_dim * num_bytes)
    blocks_each = -(-run.sizes.kv_bytes // (token_bytes * BLOCK_SIZE * case.num_seqs))
    num_blocks = case.num_seqs * blocks_each
    shape = (num_blocks, BLOCK_SIZE, kv_heads, head_dim)
    layers = new_kv_layers(
        1 if run.is_tiny else NUM_LAYERS, shape, case.kind, run.dtype, run.device
    )
    for layer in layers:
        _fill(layer)
    tables = torch.randperm(num_blocks, device=run.device).int().view(case.num_seqs, blocks_each)
    ones, seq_len = (1,) * case.num_seqs, blocks_each * BLOCK_SIZE
    slots = tables[:, -1].long() * BLOCK_SIZE + BLOCK_SIZE - 1
    ragged = ops.Ragged.of(ones, (seq_len,) * case.num_seqs, tables, slots)
    plan = ops.plan_attention(ragged, BLOCK_SIZE, run.dtype)
    q = torch.randn(case.num_seqs, heads, head_dim, device=run.device, dtype=run.dtype)
    calls = [_call(q, layer, plan) for layer in layers]
    return layers[0].num_bytes, seconds_of(calls, run.device, run.sizes.repeats)


def _fill(layer: KvLayer) -> None:
    """Numbers of every size; what kinds of cache mean by them is all one here."""
    for stored in (layer.k, layer.v):
        if layer.kind == "plain":
            stored.normal_()
        else:
            stored.view(torch.uint8).random_(0, 120)
    for scale in (layer.k_scale, layer.v_scale):
        if scale is not None:
            scale.fill_(0.01)


def _call(q: Tensor, layer: KvLayer, plan: ops.AttentionPlan) -> Callable[[], Tensor]:
    return lambda: ops.paged_attention(q, layer, plan)
