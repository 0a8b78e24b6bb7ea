"""A matrix product with the weight in the layout that the device is fastest with.

On a CPU in float32 that is oneDNN's blocked layout: at the few rows of a decode step it is two to
three times as fast as the row-major product of the BLAS library.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.choice import uses_triton
from forebay_kernels.portable.batch_invariant import in_tiles, is_on

_PACKED_FOR_ROWS = 8
"""The blocked layout differs little by the number of rows; this suits decode steps best."""


class Linear:
    """x @ weight.T + bias.

    Shapes: x [T, I]; weight [N, I]; bias [N]; out [T, N].
    weight, bias: as they are kept, on a CPU perhaps in oneDNN's layout.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, repack: bool = True) -> None:
        """Take a weight over; repack=False leaves it as it is, for one that is used elsewhere."""
        self.num_bytes = weight.nbytes + (bias.nbytes if bias is not None else 0)
        self._uses_onednn = _can_use_onednn(weight)
        self.bias = bias
        self.weight = weight
        if self._uses_onednn and repack:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        return in_tiles(self._multiply, x) if is_on() else self._multiply(x)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], in one pass where the device can."""
        return in_tiles(self._add, residual, x) if is_on() else self._add(residual, x)

    def _multiply(self, x: Tensor) -> Tensor:
        if not self._uses_onednn:
            return functional.linear(x, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out

    def _add(self, residual: Tensor, x: Tensor) -> Tensor:
        if not self._uses_onednn:
            return residual + functional.linear(x, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self.weight, self.bias, "add"
        )
        return out


def _can_use_onednn(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and not uses_triton(weight.device)
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
