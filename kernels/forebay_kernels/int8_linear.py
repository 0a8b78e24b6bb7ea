"""Linear's place where both factors have eight bits: W8A8."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from forebay_kernels.choice import refuse_interpreted, uses_triton
from forebay_kernels.portable.int8_linear import int8_linear
from forebay_kernels.quant_matrix import QuantMatrix


class Int8Linear:
    """x @ weight.T + bias, each token's x rounded to eight bits by a scale of its own.

    Shapes: x [T, I]; weight [N, I]; bias [N]; out [T, N].
    """

    def __init__(
        self,
        matrix: QuantMatrix,
        bias: Tensor | None = None,
        join_largest: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Take a matrix over, of eight bits, with one scale a row and without zeros.

        join_largest: from the largest number of each token's inputs here [T, 1] to that of its
        inputs on all ranks; None: all are here.
        Raises: ValueError if the matrix is another.
        """
        if (matrix.bits, matrix.group_size, matrix.zeros) != (8, None, None):
            raise ValueError("a product of bytes takes one scale a row, and no zero points")
        self.num_bytes = matrix.num_bytes + (bias.nbytes if bias is not None else 0)
        self._matrix = matrix
        self._bias = bias
        self._join_largest = join_largest

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return self._multiply(x, None)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N]."""
        return self._multiply(x, residual)

    def _multiply(self, x: Tensor, residual: Tensor | None) -> Tensor:
        if uses_triton(x.device):
            from forebay_kernels.gpu.products import gemm_w8a8

            refuse_interpreted(x.dtype)
            return gemm_w8a8.int8_linear(x, self._matrix, self._bias, self._join_largest, residual)
        out = int8_linear(x, self._matrix, self._bias, self._join_largest)
        return out if residual is None else residual + out
