"""Operations as instructions: what those of `ops` do where their first argument is recorded.

Each has the name and the arguments of its operation; `choice.recordable` finds it by the name. What
a program has at hand by itself (token ids, positions, slots, the plan of attention) is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.cpu.packed_matrix import PackedMatrix
from forebay_kernels.cpu.product import CpuLinear
from forebay_kernels.cpu.recorded import CannotRecord, RecordedIds, RecordedPlan, RecordedRows
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.rotation import HeadNorms, Rotation


def embedding(
    token_ids: RecordedIds, table: Tensor | PackedMatrix, first_id: int | None = None
) -> RecordedRows:
    """Raises: CannotRecord for a part of a table."""
    if first_id is not None:
        raise CannotRecord("a vocabulary is shared by several ranks")
    return RecordedRows(token_ids.program, token_ids.program.embedding(table))


def scale(x: RecordedRows, factor: Tensor) -> RecordedRows:
    """In place."""
    return x.then(x.program.scale(x.buffer, float(factor)))


def add(x: RecordedRows, y: RecordedRows) -> RecordedRows:
    """In place of x."""
    x.program.add(x.buffer, y.buffer)
    return x


def rms_norm(x: RecordedRows, weight: Tensor, eps: float) -> RecordedRows:
    """New rows."""
    return x.then(x.program.rms_norm(x.buffer, weight, eps))


def multiply_row(x: RecordedRows, products: Sequence[Callable[[Tensor], Tensor]]) -> RecordedRows:
    """New rows. Raises: CannotRecord if another than the CPU's kernels computes a product."""
    parts = [(each.matrix, each.bias) for each in products if isinstance(each, CpuLinear)]
    if len(parts) < len(products):
        raise CannotRecord("a product is computed by torch's operators")
    return x.then(x.program.linear_row(x.buffer, parts))


def rotate_and_write(
    qkv: RecordedRows,
    norms: HeadNorms | None,
    rotation: Rotation,
    layer: KvLayer,
    slots: Tensor | None,
) -> RecordedRows:
    """The queries, the heads of each token side by side."""
    cos, sin = rotation.cos, rotation.sin
    return qkv.then(qkv.program.rotate_and_write(qkv.buffer, norms, cos, sin, layer))


def paged_attention(
    q: RecordedRows, layer: KvLayer, plan: RecordedPlan, rule: AttentionRule = FULL_ATTENTION
) -> RecordedRows:
    """New rows, the heads of each token side by side."""
    return q.then(q.program.attention(q.buffer, layer, rule))


def join_heads(x: RecordedRows) -> RecordedRows:
    """They are."""
    return x


def silu_mul(gate_up: RecordedRows) -> RecordedRows:
    """New rows of half the width."""
    return gate_up.then(gate_up.program.gate_mul(gate_up.buffer, "silu"))


def gelu_tanh_mul(gate_up: RecordedRows) -> RecordedRows:
    """New rows of half the width."""
    return gate_up.then(gate_up.program.gate_mul(gate_up.buffer, "gelu_tanh"))


def softcap(x: RecordedRows, cap: float) -> RecordedRows:
    """In place."""
    return x.then(x.program.softcap(x.buffer, cap))


def widen(x: RecordedRows) -> RecordedRows:
    """They are float32."""
    return x
