"""What calibration tells of a product's inputs: how large each is, and how they go together."""

from __future__ import annotations

import torch
from torch import Tensor


class InputStatistics:
    """Sums over all tokens that were added; K numbers a token."""

    def __init__(self, num_inputs: int, device: torch.device) -> None:
        self._num_tokens = 0
        self._products = torch.zeros(num_inputs, num_inputs, device=device)
        self._sizes = torch.zeros(num_inputs, device=device)

    def add(self, x: Tensor) -> None:
        """Count tokens. Shapes: x [..., K] float32."""
        rows = x.flatten(0, -2)
        self._num_tokens += len(rows)
        self._products.addmm_(rows.T, rows)
        self._sizes += rows.abs().sum(0)

    @property
    def moments(self) -> Tensor:
        """The mean of x.T @ x over tokens x: [K, K]. The sums are used up by it."""
        return self._products / max(1, self._num_tokens)

    @property
    def sizes(self) -> Tensor:
        """The mean size of each input: [K]."""
        return self._sizes / max(1, self._num_tokens)
