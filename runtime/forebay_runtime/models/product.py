"""The product of activations with a matrix, whatever the matrix is kept in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_kernels.quant_matrix import QuantMatrix, can_merge, merge_rows
from forebay_runtime.models.link import Link

Matrix = Tensor | QuantMatrix


class Product(Protocol):
    """x @ weight.T + bias. Shapes: x [T, I]; out [T, N]."""

    num_bytes: int
    """Of weight and bias, as they are kept."""

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], which may be written over."""


class Row:
    """Products of the same inputs, their outputs side by side.

    For parts of one product that are kept in different ways, so that no kernel takes them as one.
    """

    def __init__(self, parts: Sequence[Product]) -> None:
        self.num_bytes = sum(part.num_bytes for part in parts)
        self._parts = tuple(parts)

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return torch.cat([part(x) for part in self._parts], -1)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N]."""
        return residual + self(x)


def build_product(matrices: Sequence[Matrix], bias: Tensor | None, inputs: Link | None) -> Product:
    """Take matrices of the same inputs over, as one product or side by side where they cannot be.

    Outputs come in their order; bias [N] is of all of them.

    inputs: where quantised matrices take inputs that are rounded too, the link to the ranks that
    have the others of a row; None: inputs stay as they are.
    """
    parts: list[Product] = []
    row = 0
    for same in _runs(matrices):
        num_rows = sum(_num_rows(matrix) for matrix in same)
        own_bias = None if bias is None else bias[row : row + num_rows]
        parts.append(_build(same, own_bias, inputs))
        row += num_rows
    return parts[0] if len(parts) == 1 else Row(parts)


def _runs(matrices: Sequence[Matrix]) -> list[list[Matrix]]:
    """Neighbours that can be one product."""
    runs: list[list[Matrix]] = []
    for matrix in matrices:
        if runs and _can_merge(runs[-1][0], matrix):
            runs[-1].append(matrix)
        else:
            runs.append([matrix])
    return runs


def _can_merge(one: Matrix, other: Matrix) -> bool:
    if not isinstance(one, QuantMatrix) or not isinstance(other, QuantMatrix):
        return isinstance(one, Tensor) and isinstance(other, Tensor)
    return can_merge(one, other)


def _build(matrices: list[Matrix], bias: Tensor | None, inputs: Link | None) -> Product:
    quantised = [matrix for matrix in matrices if isinstance(matrix, QuantMatrix)]
    if not quantised:
        return ops.Linear(torch.cat([m for m in matrices if isinstance(m, Tensor)]), bias)
    matrix = quantised[0] if len(quantised) == 1 else merge_rows(quantised)
    if inputs is None:
        return ops.QuantLinear(matrix, bias)
    return ops.Int8Linear(matrix, bias, lambda largest: inputs.join(largest).amax(-1, True))


def _num_rows(matrix: Matrix) -> int:
    return matrix.num_outputs if isinstance(matrix, QuantMatrix) else len(matrix)
