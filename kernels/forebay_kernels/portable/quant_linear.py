"""The product with a quantised matrix by torch alone: dequantise a few outputs, multiply, go on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.portable.batch_invariant import in_tiles, is_on
from forebay_kernels.quant_matrix import QuantMatrix

_TILE_WEIGHTS = 1 << 20
"""Weights that are dequantised at a time: 4 MiB of float32, that a processor's cache holds until
they are multiplied. Of 16 MiB a product took three times as long."""


def quant_linear(
    x: Tensor, matrix: QuantMatrix, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """x @ weight.T + bias + residual, the weight in x's dtype only tile by tile.

    Shapes: x [T, num_inputs]; bias [N]; residual, out [T, N].
    """
    num_rows = max(1, _TILE_WEIGHTS // matrix.num_stored)
    starts = range(0, matrix.num_outputs, num_rows)
    parts = [_multiply(x, matrix, start, start + num_rows) for start in starts]
    out = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    if bias is not None:
        out += bias
    return out if residual is None else out.add_(residual)


def _multiply(x: Tensor, matrix: QuantMatrix, start: int, end: int) -> Tensor:
    end = min(end, matrix.num_outputs)
    weight = matrix.split_rows(start, end).dequantised(x.dtype)
    if not is_on():
        return functional.linear(x, weight)
    return in_tiles(lambda rows: functional.linear(rows, weight), x)
