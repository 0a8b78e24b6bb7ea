"""Attention over a paged cache, as share of what reading it, or multiplying, allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cpu_parts.limits import least_seconds
from cpu_parts.row import Row
from forebay_kernels import ops
from forebay_kernels.cpu.program import Program
from forebay_kernels.cpu.step import StepArrays
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_kernels.kv_layer import KvLayer, new_kv_layers
from forebay_kernels.usable_cpus import usable_cpus

_BLOCK_SIZE = 16
_CACHE_BYTES = 64 * 2**20
_REPEATS = 5
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Heads:
    """A model's."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int


HEADS = (Heads("SmolLM2-135M", 9, 3, 64), Heads("1B", 32, 8, 64), Heads("7B", 32, 8, 128))


def measure(
    models: Sequence[str], dtypes: Sequence[torch.dtype], *, has_torch: bool
) -> Iterator[Row]:
    """Decode of 1, 8 and 32 sequences, and a prompt's part of 512 tokens behind 1,536."""
    for heads in (heads for heads in HEADS if heads.name in models):
        for dtype in dtypes:
            for batch in (1, 8, 32):
                case = Case(heads, dtype, batch, query_len=1, seq_len=1024)
                yield _time(case, has_torch=has_torch)
            yield _time(Case(heads, dtype, 1, query_len=512, seq_len=2048), has_torch=has_torch)


@dataclass(frozen=True)
class Case:
    """Sequences of one length, the dtype of their cache, and their last tokens that ask."""

    heads: Heads
    dtype: torch.dtype
    batch: int
    query_len: int
    seq_len: int

    @property
    def layer_bytes(self) -> int:
        """Of a layer's keys and values."""
        width = self.heads.num_kv_heads * self.heads.head_dim
        return 2 * self.batch * self.seq_len * width * self.dtype.itemsize

    @property
    def num_operations(self) -> int:
        """A query sees the keys before it, its own included."""
        length = self.query_len
        seen = length * self.seq_len - length * (length - 1) // 2
        return 4 * self.batch * seen * self.heads.num_heads * self.heads.head_dim

    def __str__(self) -> str:
        tokens = "decode" if self.query_len == 1 else f"{self.query_len} tokens"
        behind = self.seq_len - self.query_len
        return f"{self.heads.name}, {tokens} behind {behind}, {str(self.dtype)[6:]}"


def _time(case: Case, *, has_torch: bool) -> Row:
    heads, num_tokens = case.heads, case.batch * case.query_len
    blocks_each = -(-case.seq_len // _BLOCK_SIZE)
    shape = (case.batch * blocks_each, _BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
    num_layers = max(1, _CACHE_BYTES // case.layer_bytes)
    layers = new_kv_layers(num_layers, shape, "plain", case.dtype, _CPU)
    for layer in layers:
        layer.k.normal_()
        layer.v.normal_()
    tables = torch.randperm(case.batch * blocks_each).int().view(case.batch, blocks_each)
    q = torch.randn(num_tokens, heads.num_heads, heads.head_dim)
    return Row(
        part="attention",
        what=str(case),
        batch=case.batch,
        seconds=_time_natively(case, q, layers, tables),
        num_bytes=case.layer_bytes,
        num_operations=case.num_operations,
        kind="float32",
        torch_seconds=_time_torch(case, q, layers, tables) if has_torch else None,
    )


def _time_natively(
    case: Case, q: torch.Tensor, layers: Sequence[KvLayer], tables: torch.Tensor
) -> float:
    """A layer's, by a program of nothing else; all layers have the same queries."""
    num_tokens = len(q)
    program = Program(num_tokens, case.batch, 1, ThreadPool(usable_cpus()))
    queries = program.embedding(q.flatten(1))
    for layer in layers:
        program.attention(queries, layer)
    program.finish()
    step = StepArrays(
        token_ids=np.arange(num_tokens),
        positions=np.zeros(num_tokens, np.int64),
        slots=np.full(num_tokens, -1),
        query_starts=np.arange(case.batch + 1, dtype=np.int32) * case.query_len,
        seq_lens=np.full(case.batch, case.seq_len, np.int32),
        block_tables=tables.numpy(),
        sampled_rows=np.zeros(0, np.int64),
    )
    runs = [program.time_operations(step)["Attention"] for _ in range(1 + _REPEATS)]
    return min(runs[1:]) / 1e9 / len(layers)


def _time_torch(
    case: Case, q: torch.Tensor, layers: Sequence[KvLayer], tables: torch.Tensor
) -> float:
    """The same by torch's operators, which gather pages first."""
    slots = tables[:, -1].long().repeat_interleave(case.query_len) * _BLOCK_SIZE
    lengths = (case.query_len,) * case.batch, (case.seq_len,) * case.batch
    plan = ops.plan_attention(ops.Ragged.of(*lengths, tables, slots), _BLOCK_SIZE, q.dtype)

    def run() -> None:
        for layer in layers:
            ops.paged_attention(q, layer, plan)

    return least_seconds(run, _REPEATS) / len(layers)
