"""The product by which a block's result joins the residual stream."""

from __future__ import annotations

from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_kernels import ops
from forebay_runtime.models.link import ALONE, Link
from forebay_runtime.models.product import Product
from forebay_runtime.models.residual import Residual
from forebay_runtime.models.weights import WeightReader


class Projection:
    """A product, and in some families a norm behind it, added to the residual."""

    def __init__(
        self, linear: Product, norm: Tensor | None, eps: float, link: Link = ALONE
    ) -> None:
        """link: to the ranks that have the other inputs of the product."""
        self._linear = linear
        self._link = link
        self._norm = norm
        self._eps = eps
        self.num_bytes = linear.num_bytes + (0 if norm is None else norm.nbytes)

    @staticmethod
    def read_norm(
        blueprint: Blueprint, reader: WeightReader, layer: str, name: str | None
    ) -> Tensor | None:
        """The norm of a layer by its name in the family; None where it has none."""
        if name is None:
            return None
        return reader.norm(f"{layer}.{name}.weight", blueprint.sizes.hidden_size)

    def add_to(self, residual: Residual, x: Tensor) -> None:
        """Shapes: x [T, I]."""
        if self._norm is None and self._link.shard.is_whole:
            return residual.add_product(self._linear, x)
        out = self._link.add_up(self._linear(x))
        residual.add(out if self._norm is None else ops.rms_norm(out, self._norm, self._eps))
