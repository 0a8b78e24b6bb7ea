"""Linear's place for a weight in four or eight bits."""

from __future__ import annotations

from torch import Tensor

from forebay_kernels.choice import refuse_interpreted, uses_triton
from forebay_kernels.portable import quant_linear as portable
from forebay_kernels.quant_matrix import QuantMatrix


class QuantLinear:
    """x @ weight.T + bias, the weight kept quantised.

    Shapes: x [T, I]; weight [N, I]; bias [N]; out [T, N].
    """

    def __init__(self, matrix: QuantMatrix, bias: Tensor | None = None) -> None:
        self.num_bytes = matrix.num_bytes + (bias.nbytes if bias is not None else 0)
        self.matrix = matrix
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return self._multiply(x, None)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], in one pass."""
        return self._multiply(x, residual)

    def _multiply(self, x: Tensor, residual: Tensor | None) -> Tensor:
        if uses_triton(x.device):
            from forebay_kernels.gpu.products.gemm_quant import quant_linear

            refuse_interpreted(x.dtype)
            return quant_linear(x, self.matrix, self.bias, residual)
        return portable.quant_linear(x, self.matrix, self.bias, residual)
