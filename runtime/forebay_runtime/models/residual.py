"""The residual stream: what blocks read, normed, and add their results to."""

from __future__ import annotations

from torch import Tensor

from forebay_kernels import ops
from forebay_runtime.models.product import Product


class Residual:
    """The sum of an embedding and what blocks gave, for one step.

    Where the device adds cheapest in the next norm, a result waits for that; else it is added by
    the product that computes it.
    """

    def __init__(self, x: Tensor) -> None:
        """Take x [T, h] over; it may be written over."""
        self._sum = x
        self._waiting: Tensor | None = None

    def normed(self, weight: Tensor, eps: float) -> Tensor:
        """The stream through a norm. Shapes: weight [h]; out [T, h]."""
        if self._waiting is None:
            return ops.rms_norm(self._sum, weight, eps)
        normed, self._sum = ops.add_rms_norm(self._waiting, self._sum, weight, eps)
        self._waiting = None
        return normed

    def add(self, x: Tensor) -> None:
        """Add x [T, h], which may be written over."""
        if ops.adds_in_norm(x):
            self._sum, self._waiting = self.total(), x
        else:
            self._sum = ops.add(self.total(), x)

    def add_product(self, linear: Product, x: Tensor) -> None:
        """Add the product of x [T, I]."""
        if ops.adds_in_norm(x):
            self.add(linear(x))
        else:
            self._sum = linear.add_to(self.total(), x)

    def total(self) -> Tensor:
        """The stream itself, with all that was added: [T, h]."""
        if self._waiting is not None:
            self._sum, self._waiting = ops.add(self._sum, self._waiting), None
        return self._sum
