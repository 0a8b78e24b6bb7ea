"""The product of bytes by torch alone: exact in int32, so that no order of adding matters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from forebay_kernels.quant_matrix import QuantMatrix

LARGEST = 127
LEAST = 1e-20
"""What a token of zeros is scaled by, so that nothing is divided by zero."""


def round_tokens(
    x: Tensor, join_largest: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Each token by a scale of its own, rounded to the nearest, halves to even.

    Shapes: x [T, I]; out: int8 [T, I], scales [T, 1] float32. join_largest as in Int8Linear.
    """
    wide = x.float()
    largest = wide.abs().amax(-1, keepdim=True)
    if join_largest is not None:
        largest = join_largest(largest)
    scale = largest.clamp_min(LEAST) / LARGEST
    return (wide / scale).round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scale


def int8_linear(
    x: Tensor,
    matrix: QuantMatrix,
    bias: Tensor | None = None,
    join_largest: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """x @ weight.T + bias over rounded x. Shapes: x [T, I]; bias [N]; out [T, N]."""
    rounded, scale = round_tokens(x, join_largest)
    weight = (matrix.codes() ^ 128).view(torch.int8)
    sums = torch._int_mm(rounded, weight.T)
    out = (sums * scale).mul_(matrix.scales.float()).to(x.dtype)
    return out if bias is None else out.add_(bias)
