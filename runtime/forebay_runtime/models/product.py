"""The product of activations with a matrix, whatever the matrix is kept in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


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
