"""Rounding to nearest, with scales by the groups' extremes."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_runtime.quantizing.grid import Grid, RoundedMatrix, groups_in_order
from forebay_runtime.quantizing.scale_search import search_scales


def round_to_nearest(weight: Tensor, grid: Grid) -> RoundedMatrix:
    """Round each weight by itself. Shapes: weight [N, K] float32."""
    num_inputs = weight.shape[1]
    size = grid.size(num_inputs)
    groups = weight.unflatten(1, (-1, size))
    scales, zeros = search_scales(groups, grid)
    codes = grid.encode(groups, scales.unsqueeze(2), zeros.unsqueeze(2))
    return RoundedMatrix(
        codes.flatten(1).to(torch.uint8),
        scales,
        zeros,
        groups_in_order(num_inputs, size, weight.device),
    )
