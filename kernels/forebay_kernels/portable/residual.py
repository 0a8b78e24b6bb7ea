"""The residual stream's sum with the norm behind it, by torch operations alone."""

from __future__ import annotations

from torch import Tensor

from forebay_kernels.portable import elementwise
from forebay_kernels.portable.batch_invariant import by_rows

_rms_norm = by_rows(elementwise.rms_norm)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add x to the residual stream and norm the sum; both may be written over.

    Shapes: x, residual [T, N]; weight [N], which may be wider; out: the normed, and the sum.
    """
    residual = residual + x
    return _rms_norm(residual, weight, eps), residual
