"""Norms, gates and look-ups against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from forebay_kernels import ops, reference
from gpu_parts.maker import Check, Maker


def row_checks() -> Iterator[tuple[str, Check]]:
    """By name."""
    yield "rms_norm", _rms_norm
    yield "add_rms_norm, the normed", lambda maker: _add_rms_norm(maker, 0)
    yield "add_rms_norm, the sum", lambda maker: _add_rms_norm(maker, 1)
    yield "silu_mul", lambda maker: _gate(maker, ops.silu_mul, reference.silu_mul)
    yield "gelu_tanh_mul", lambda maker: _gate(maker, ops.gelu_tanh_mul, reference.gelu_tanh_mul)
    yield "embedding", _embedding


def _rms_norm(maker: Maker) -> tuple[Tensor, Tensor]:
    x, weight = maker.normal(37, 576), maker.normal(576)
    got = ops.rms_norm(maker.there(x), maker.there(weight), 1e-5)
    return got, reference.rms_norm(x, weight, 1e-5)


def _add_rms_norm(maker: Maker, which: int) -> tuple[Tensor, Tensor]:
    x, residual, weight = maker.normal(37, 576), maker.normal(37, 576), maker.normal(576)
    expected = reference.add_rms_norm(x, residual, weight, 1e-5)[which]
    got = ops.add_rms_norm(maker.there(x), maker.there(residual), maker.there(weight), 1e-5)
    return got[which], expected


def _gate(
    maker: Maker, gate: Callable[[Tensor], Tensor], oracle: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    x = maker.normal(37, 2 * 1536)
    return gate(maker.there(x)), oracle(x)


def _embedding(maker: Maker) -> tuple[Tensor, Tensor]:
    token_ids, table = maker.order(99)[:37], maker.normal(99, 576)
    got = ops.embedding(maker.there(token_ids), maker.there(table))
    return got, reference.embedding(token_ids, table)
