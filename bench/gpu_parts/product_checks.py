"""Products of every form of weights, and mixtures, against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from forebay_kernels import ops, reference
from forebay_kernels.portable.int8_linear import int8_linear
from forebay_kernels.quant_matrix import quantise
from gpu_parts.maker import Check, Maker

_NUM_ROWS = (1, 7, 70)
_FORMS = ((4, 32, True), (4, 128, False), (8, None, True))
"""Bits, inputs of a group, and whether codes lie about the middle."""
_SIZES = (200, 512)
"""Outputs and inputs."""


def product_checks() -> Iterator[tuple[str, Check]]:
    """By name."""
    for num_rows in _NUM_ROWS:
        for form in _FORMS:
            name = f"product by {form[0]} bits, group {form[1]}, {num_rows} rows"
            yield name, lambda m, f=form, n=num_rows: _quantised(m, f, n)
        yield f"product of bytes, {num_rows} rows", lambda m, n=num_rows: _bytes(m, n)
        yield f"batch-invariant product, {num_rows} rows", lambda m, n=num_rows: _invariant(m, n)
        yield f"mixture, {num_rows} rows", lambda m, n=num_rows: _mixture(m, n)


def _quantised(
    maker: Maker, form: tuple[int, int | None, bool], num_rows: int
) -> tuple[Tensor, Tensor]:
    bits, group_size, symmetric = form
    x, weight = maker.normal(num_rows, _SIZES[1]), maker.normal(*_SIZES)
    matrix = quantise(weight, bits, group_size, symmetric)
    got = ops.QuantLinear(matrix.to(maker.device))(maker.there(x))
    return got, reference.quant_linear(x, matrix)


def _bytes(maker: Maker, num_rows: int) -> tuple[Tensor, Tensor]:
    x, weight = maker.normal(num_rows, _SIZES[1]), maker.normal(*_SIZES)
    matrix = quantise(weight, 8, None, symmetric=True)
    return ops.Int8Linear(matrix.to(maker.device))(maker.there(x)), int8_linear(x, matrix)


def _invariant(maker: Maker, num_rows: int) -> tuple[Tensor, Tensor]:
    x, weight = maker.normal(num_rows, _SIZES[1]), maker.normal(*_SIZES)
    with ops.batch_invariant(True):
        got = ops.Linear(maker.there(weight))(maker.there(x))
    return got, x.float() @ weight.float().T


def _mixture(maker: Maker, num_rows: int) -> tuple[Tensor, Tensor]:
    """Four experts, of which each token passes two."""
    hidden, inner = 128, 96
    x = maker.normal(num_rows, hidden)
    gate_ups = [maker.normal(2 * inner, hidden) * 0.1 for _ in range(4)]
    downs = [maker.normal(hidden, inner) * 0.1 for _ in range(4)]
    chosen = ops.choose_experts(maker.normal(num_rows, 4), 2, is_normalised=True)
    expected = torch.zeros(num_rows, hidden)
    for row, (weights, experts) in enumerate(zip(*chosen, strict=True)):
        for weight, expert in zip(weights, experts.tolist(), strict=True):
            gated = reference.silu_mul(x[row : row + 1].float() @ gate_ups[expert].float().T)
            expected[row] += weight * (gated @ downs[expert].float().T)[0]
    # Held here: the operation only notes where they lie.
    up, down = ([ops.Linear(maker.there(each)) for each in part] for part in (gate_ups, downs))
    operation = ops.group_experts(up, down, ops.silu_mul)
    if operation is None:
        raise ValueError("no kernel takes a mixture of plain matrices")
    return operation(maker.there(x), *map(maker.there, chosen)), expected
