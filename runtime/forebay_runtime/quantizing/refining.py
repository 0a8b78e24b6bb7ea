"""Betters a rounded matrix as a whole: all of its scales at once, then its codes one by one.

Scales are the least squares for the codes as they are. A code becomes the best one beside all
others, those before it and behind it, where GPTQ sees those behind alone.
Source: Behdin et al. 2023 (QuantEase) for the descent over codes.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from forebay_runtime.quantizing.grid import Grid, RoundedMatrix, to_half

_NUM_TURNS = 2
"""The first takes 7 % of what outputs are off by (as squares), the second 2 %, the third 1 %."""
_BLOCK_INPUTS = 128
_PIECE_ELEMENTS = 2**25
"""128 MiB of float32 for each of the few tensors that a turn holds."""
_MOST_CHANGE = 2.0
"""A scale beyond that is what noise makes of a group that hardly counts."""
_RIDGE = 1e-3
"""Of the mean of what a row's scales weigh, towards those that it has."""
_LEAST_MOMENT = torch.finfo(torch.float32).tiny
"""Of inputs that were zero throughout, which cost nothing and move nothing."""


def refine(
    rounded: RoundedMatrix, weight: Tensor, moments: Tensor, grid: Grid, damping: float
) -> RoundedMatrix:
    """The same zero points and groups, with scales and codes that cost the outputs less.

    Shapes: weight [N, K] float32, which `rounded` stands for; moments [K, K] of its inputs.
    damping: added to each input's own moment, as a share of their mean.
    """
    damped = moments.clone()
    damped.diagonal().add_(damping * damped.diagonal().mean())
    num_groups = rounded.scales.shape[1]
    num_rows = max(1, _PIECE_ELEMENTS // max(weight.shape[1], num_groups**2))
    pieces = []
    for start in range(0, len(weight), num_rows):
        rows = slice(start, start + num_rows)
        piece = rounded.rows(rows)
        for _ in range(_NUM_TURNS):
            piece = _with_best_scales(piece, weight[rows], damped)
            piece = _with_best_codes(piece, weight[rows], damped, grid)
        pieces.append(piece)
    codes, scales = (
        torch.cat([getattr(piece, name) for piece in pieces]) for name in ("codes", "scales")
    )
    return replace(rounded, codes=codes, scales=scales)


def _with_best_scales(rounded: RoundedMatrix, weight: Tensor, moments: Tensor) -> RoundedMatrix:
    """Solves (D.T H D) s = D.T H w for each row, where D spreads its codes over their groups."""
    num_groups = rounded.scales.shape[1]
    order = rounded.groups.argsort(stable=True)
    steps = (rounded.codes.float() - rounded.zeros[:, rounded.groups])[:, order]
    moments, weight = moments[order][:, order], weight[:, order]
    shape = (len(weight), num_groups, -1)
    wanted = ((weight @ moments) * steps).view(shape).sum(2)
    products = torch.stack(
        [
            ((part @ rows) * steps).view(shape).sum(2)
            for part, rows in zip(
                steps.chunk(num_groups, 1), moments.chunk(num_groups), strict=True
            )
        ],
        1,
    )
    own = products.diagonal(dim1=1, dim2=2)
    ridge = (_RIDGE * own.mean(1, keepdim=True)).clamp(min=_LEAST_MOMENT)
    wanted += ridge * rounded.scales
    own.add_(ridge)
    solved, failures = torch.linalg.solve_ex(products, wanted)
    scales = to_half(solved)
    change = scales / rounded.scales
    is_sound = (change < _MOST_CHANGE) & (change > 1 / _MOST_CHANGE) & (failures == 0).unsqueeze(1)
    return replace(rounded, scales=torch.where(is_sound, scales, rounded.scales))


def _with_best_codes(
    rounded: RoundedMatrix, weight: Tensor, moments: Tensor, grid: Grid
) -> RoundedMatrix:
    """One descent over all codes; inputs of large moments first.

    All is held by input, [K, N], so that what an input's codes are found of lies side by side.
    """
    own = moments.diagonal().clamp(min=_LEAST_MOMENT).tolist()
    groups = rounded.groups.tolist()
    scales, zeros = rounded.scales.T.contiguous(), rounded.zeros.T.contiguous()
    codes = rounded.codes.T.float()
    slopes = moments @ (weight - rounded.weight()).T
    order = moments.diagonal().argsort(descending=True, stable=True)
    for inputs in order.split(_BLOCK_INPUTS):
        among, near = moments[inputs][:, inputs], slopes[inputs]
        moved = torch.empty_like(near)
        for place, k in enumerate(inputs.tolist()):
            scale, zero = scales[groups[k]], zeros[groups[k]]
            best = (codes[k] - zero).mul_(scale).add_(near[place], alpha=1 / own[k])
            code = grid.encode(best, scale, zero)
            torch.mul(code - codes[k], scale, out=moved[place])
            codes[k] = code
            near.addr_(among[place], moved[place], alpha=-1)
        slopes.addmm_(moments[:, inputs], moved, alpha=-1)
    return replace(rounded, codes=codes.T.to(torch.uint8).contiguous())
