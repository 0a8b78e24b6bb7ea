"""What calibration tells of a product's inputs: how large each is, and how they go together.

And how they have drifted from what the original model has there, since what is before was rounded.
"""

from __future__ import annotations

import torch
from torch import Tensor

_RIDGE = 0.1
"""How far drift is distrusted, a share of the inputs' mean moment: it is known from few tokens."""


class InputStatistics:
    """Sums over all tokens that were added; K numbers a token."""

    def __init__(self, num_inputs: int, device: torch.device) -> None:
        self._num_tokens = 0
        self._products = torch.zeros(num_inputs, num_inputs, device=device)
        self._sizes = torch.zeros(num_inputs, device=device)
        self._with_original = torch.zeros_like(self._products)

    def add(self, x: Tensor, original: Tensor) -> None:
        """Count tokens. Shapes: x, original [..., K] float32: inputs as they are and were."""
        rows = x.flatten(0, -2)
        self._num_tokens += len(rows)
        self._products.addmm_(rows.T, rows)
        self._sizes += rows.abs().sum(0)
        self._with_original.addmm_(original.flatten(0, -2).T, rows)

    @property
    def moments(self) -> Tensor:
        """The mean of x.T @ x over tokens x: [K, K]."""
        return self._products / max(1, self._num_tokens)

    @property
    def sizes(self) -> Tensor:
        """The mean size of each input: [K]."""
        return self._sizes / max(1, self._num_tokens)

    def aimed(self, weight: Tensor) -> Tensor:
        """The weights that make of the inputs, as they are, what these made of the original ones.

        As nearly as least squares with a ridge towards the weights themselves can.
        Shapes: weight, out [N, K].
        Source: the aim is that of Li et al. 2025 (GPTAQ), asymmetric calibration; here it is
        reached before rounding, instead of column by column.
        """
        damped = self._products.clone()
        ridge = float(_RIDGE * damped.diagonal().mean())
        damped.diagonal().add_(ridge)
        lower, failure = torch.linalg.cholesky_ex(damped)
        if failure or not ridge:
            return weight
        wanted = weight @ self._with_original + ridge * weight
        aimed: Tensor = torch.cholesky_solve(wanted.T, lower).T.contiguous()
        return aimed
