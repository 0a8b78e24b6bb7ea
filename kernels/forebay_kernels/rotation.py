"""A step's rotary embedding: the table of all positions, and which of them are at hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """What turns a step's queries and keys.

    cos, sin: [num_positions, 1, R], a table as ops.rope_table makes it. positions: [T] int64.
    """

    cos: Tensor
    sin: Tensor
    positions: Tensor

    @cached_property
    def at_positions(self) -> tuple[Tensor, Tensor]:
        """The rows of the table at the positions, looked up once a step: each [T, 1, R]."""
        return self.cos[self.positions], self.sin[self.positions]


@dataclass(frozen=True)
class HeadNorms:
    """The norms of each query and key head before they are turned.

    weight: [H + K, D], those of the queries first.
    """

    weight: Tensor
    eps: float
