"""A mixture's experts as one operation, where the device has kernels that take all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from forebay_kernels.choice import refuse_interpreted, uses_triton
from forebay_kernels.linear import Linear
from forebay_kernels.quant_linear import QuantLinear
from forebay_kernels.quant_matrix import QuantMatrix

if TYPE_CHECKING:
    from forebay_kernels.gpu.products.moe_gemm import ExpertWeights


class Experts:
    """Gated MLPs of one shape, of which each token passes a few, without a copy to the host.

    What is run has shapes that depend on no choice, so that a CUDA graph can hold it.
    """

    def __init__(
        self, gate_up: ExpertWeights, down: ExpertWeights, gate: Callable[[Tensor], Tensor]
    ) -> None:
        self._gate_up = gate_up
        self._down = down
        self._gate = gate

    def __call__(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """Each token's experts' results, times their weights, added up.

        Shapes: x, out [T, h]; weights, experts [T, C], as choose_experts gives them.
        """
        from forebay_kernels.gpu.products.moe_gemm import experts_product

        refuse_interpreted(x.dtype)
        return experts_product(x, self._gate_up, self._down, (experts, weights), self._gate)


def group_experts(
    gate_ups: Sequence[object], downs: Sequence[object], gate: Callable[[Tensor], Tensor]
) -> Experts | None:
    """Experts by the products that each is made of: down(gate(gate_up(x))).

    The weights stay where they are. None where no kernel takes them: the device has none, products
    have biases or inputs in an order of their own, or tokens are rounded for them.
    """
    matrices = [_matrices(gate_ups), _matrices(downs)]
    if not all(matrices) or not uses_triton(_device(matrices[0][0])):
        return None
    from forebay_kernels.gpu.products.moe_gemm import ExpertWeights

    gate_up, down = (ExpertWeights.of(each) for each in matrices)
    return Experts(gate_up, down, gate)


def _matrices(products: Sequence[object]) -> list[Tensor | QuantMatrix]:
    """The weights of products without more than that; none if one is another."""
    matrices: list[Tensor | QuantMatrix] = []
    for product in products:
        if isinstance(product, Linear) and product.bias is None:
            matrices.append(product.weight)
        elif isinstance(product, QuantLinear) and product.bias is None:
            matrices.append(product.matrix)
    is_ordered = any(isinstance(m, QuantMatrix) and m.input_order is not None for m in matrices)
    return matrices if len(matrices) == len(products) and not is_ordered else []


def _device(matrix: Tensor | QuantMatrix) -> torch.device:
    return (matrix if isinstance(matrix, Tensor) else matrix.words).device
