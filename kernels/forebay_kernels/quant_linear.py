"""Linear's place for a weight in four or eight bits."""

from __future__ import annotations

from torch import Tensor

from forebay_kernels.portable import quant_linear
from forebay_kernels.quant_matrix import QuantMatrix


class QuantLinear:
    """x @ weight.T + bias, the weight kept quantised.

    Shapes: x [T, I]; weight [N, I]; bias [N]; out [T, N].
    """

    def __init__(self, matrix: QuantMatrix, bias: Tensor | None = None) -> None:
        self.num_bytes = matrix.num_bytes + (bias.nbytes if bias is not None else 0)
        self._matrix = matrix
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return quant_linear.quant_linear(x, self._matrix, self._bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], in one pass."""
        return quant_linear.quant_linear(x, self._matrix, self._bias, residual)
