"""Scales for a matrix's groups: by the extremes of each, or by what rounding costs the outputs.

A group's extremes may be clipped: a smaller scale rounds all others finer. What an error costs is
known from the inputs: e @ H @ e for errors e of a row's group and H, the inputs' second moments.
Source: Lin et al. 2024 (AWQ) §3.2, weight clipping; here with exact costs instead of samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from forebay_runtime.quantizing.grid import Grid

_SHARES = tuple(1 - step / 20 for step in range(8))
"""Of a group's extremes that are tried: 1, 0.95 … 0.65."""
_UNEVEN_STEPS = 2
"""By how many shares the two ends of a group may differ."""
_PIECE_ELEMENTS = 2**22
"""16 MiB of float32 for each of the few tensors that a search holds."""


def extremes(groups: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest of each group, zero between. Shapes: groups [..., g]; out [...]."""
    return groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)


def search_scales(
    groups: Tensor, grid: Grid, moments: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scales and zero points of groups of weights.

    Shapes: groups [N, G, g]; moments [G, g, g], of the inputs of each group, None: take extremes;
    out: each [N, G].
    """
    if moments is None:
        return grid.span(*extremes(groups))
    rows = max(1, _PIECE_ELEMENTS // (groups.shape[1] * groups.shape[2]))
    found = [_search(piece, grid, moments) for piece in groups.split(rows)]
    return torch.cat([scales for scales, _ in found]), torch.cat([zeros for _, zeros in found])


def _search(groups: Tensor, grid: Grid, moments: Tensor) -> tuple[Tensor, Tensor]:
    low, high = extremes(groups)
    best_scales, best_zeros = grid.span(low, high)
    least = torch.full_like(low, float("inf"))
    for low_share, high_share in _candidates(grid):
        scales, zeros = grid.span(low * low_share, high * high_share)
        cost = _cost(groups, grid, scales, zeros, moments)
        is_less = cost < least
        least = torch.where(is_less, cost, least)
        best_scales = torch.where(is_less, scales, best_scales)
        best_zeros = torch.where(is_less, zeros, best_zeros)
    return best_scales, best_zeros


def _candidates(grid: Grid) -> Iterator[tuple[float, float]]:
    for place, share in enumerate(_SHARES):
        if grid.is_symmetric:
            yield share, share
            continue
        for other in _SHARES[max(0, place - _UNEVEN_STEPS) : place + _UNEVEN_STEPS + 1]:
            yield share, other


def _cost(groups: Tensor, grid: Grid, scales: Tensor, zeros: Tensor, moments: Tensor) -> Tensor:
    """What rounding each group costs: [N, G]."""
    scales, zeros = scales.unsqueeze(2), zeros.unsqueeze(2)
    errors = grid.encode(groups, scales, zeros).sub_(zeros).mul_(scales).sub_(groups)
    weighed = torch.matmul(errors.transpose(0, 1), moments).transpose(0, 1)
    return (weighed * errors).sum(2)


def group_moments(moments: Tensor, size: int) -> Tensor:
    """The inputs' second moments within each group. Shapes: moments [K, K]; out [G, g, g]."""
    num_groups = moments.shape[0] // size
    blocks = moments.view(num_groups, size, num_groups, size)
    return blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1).contiguous()
