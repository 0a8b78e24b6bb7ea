"""A matrix product in the form that the device is best with."""

from __future__ import annotations

from torch import Tensor

from forebay_kernels.choice import refuse_interpreted, uses_triton
from forebay_kernels.portable import linear as portable
from forebay_kernels.portable.batch_invariant import is_on


class Linear(portable.Linear):
    """As portable.Linear; on a GPU within batch_invariant by a kernel with one order of adding."""

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return self._fixed(x, None) if self._is_fixed(x) else super().__call__(x)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], in one pass where the device can."""
        return self._fixed(x, residual) if self._is_fixed(x) else super().add_to(residual, x)

    def _is_fixed(self, x: Tensor) -> bool:
        return is_on() and uses_triton(x.device)

    def _fixed(self, x: Tensor, residual: Tensor | None) -> Tensor:
        from forebay_kernels.gpu.products.gemm_dense import linear

        refuse_interpreted(x.dtype)
        return linear(x, self.weight, self.bias, residual)
