"""GPTQ: columns are rounded one by one, and what each loses is made good by those to come.

Source: Frantar et al. 2023 (GPTQ) alg. 1, with its damping, blocked updates and the Cholesky form;
inputs are taken by falling second moment, as in its reference code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_runtime.quantizing.grid import Grid, RoundedMatrix, groups_in_order
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.quantizing.scale_search import group_moments, search_scales

_BLOCK_COLUMNS = 128
_MOST_DAMPING = 1.0


def round_by_gptq(
    weight: Tensor, moments: Tensor, grid: Grid, damping: float, *, is_reordered: bool
) -> RoundedMatrix:
    """Round a matrix so that its outputs change least for inputs of these second moments.

    Shapes: weight [N, K] float32; moments [K, K].
    damping: added to each input's own moment, as a share of their mean.
    is_reordered: groups are of inputs of like moments, and so in no order; else of neighbours.
    """
    num_inputs = weight.shape[1]
    size = grid.size(num_inputs)
    moments, weight = _without_dead_inputs(moments, weight)
    order = moments.diagonal().argsort(descending=True, stable=True)
    factor = _inverse_factor(moments[order][:, order], damping)
    places = groups_in_order(num_inputs, size, weight.device)
    ordered = weight[:, order]
    chooser: _Fixed | _Moving
    if is_reordered:
        groups = torch.empty_like(places)
        groups[order] = places
        ordered_moments = group_moments(moments[order][:, order].contiguous(), size)
        chooser = _Moving(ordered_moments, grid, size)
    else:
        groups = places
        scales, zeros = search_scales(
            weight.unflatten(1, (-1, size)), grid, group_moments(moments, size)
        )
        chooser = _Fixed(scales, zeros, groups[order])
    codes = _round_columns(ordered, factor, grid, chooser)
    unordered = torch.empty_like(codes)
    unordered[:, order] = codes
    return RoundedMatrix(unordered, *chooser.result(), groups)


class _Fixed:
    """Scales that were chosen before any column was rounded."""

    def __init__(self, scales: Tensor, zeros: Tensor, groups: Tensor) -> None:
        self._scales, self._zeros = scales, zeros
        self._groups = groups.tolist()

    def at(self, place: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero of the column at a place: [N] each."""
        group = self._groups[place]
        return self._scales[:, group], self._zeros[:, group]

    def result(self) -> tuple[Tensor, Tensor]:
        """All of them: [N, G] each."""
        return self._scales, self._zeros


class _Moving:
    """Scales that each group gets when its first column is reached, of what it has become."""

    def __init__(self, moments: Tensor, grid: Grid, size: int) -> None:
        self._moments, self._grid, self._size = moments, grid, size
        self._found: list[tuple[Tensor, Tensor]] = []

    def at(self, place: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero of the column at a place: [N] each; weight [N, K] as it stands."""
        group = place // self._size
        if group == len(self._found):
            own = weight[:, place : place + self._size].unsqueeze(1)
            scales, zeros = search_scales(own, self._grid, self._moments[group : group + 1])
            self._found.append((scales[:, 0], zeros[:, 0]))
        return self._found[group]

    def result(self) -> tuple[Tensor, Tensor]:
        """All of them: [N, G] each."""
        scales, zeros = zip(*self._found, strict=True)
        return torch.stack(scales, 1), torch.stack(zeros, 1)


def _round_columns(weight: Tensor, factor: Tensor, grid: Grid, chooser: _Fixed | _Moving) -> Tensor:
    """The codes of all columns, in their order: [N, K] uint8. weight is written over."""
    codes = torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
    num_columns = weight.shape[1]
    for start in range(0, num_columns, _BLOCK_COLUMNS):
        stop = min(start + _BLOCK_COLUMNS, num_columns)
        lost = torch.empty_like(weight[:, start:stop])
        for place in range(start, stop):
            scale, zero = chooser.at(place, weight)
            column = weight[:, place]
            code = grid.encode(column, scale, zero)
            codes[:, place] = code
            loss = (column - (code - zero) * scale) / factor[place, place]
            weight[:, place:stop].addr_(loss, factor[place, place:stop], alpha=-1)
            lost[:, place - start] = loss
        weight[:, stop:].addmm_(lost, factor[start:stop, stop:], alpha=-1)
    return codes


def _without_dead_inputs(moments: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs that were always zero count for nothing, and get the moment of one that does."""
    is_dead = moments.diagonal() == 0
    moments = moments + torch.diag(is_dead.float())
    return moments, weight.masked_fill(is_dead, 0)


def _inverse_factor(moments: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the damped moments' inverse: [K, K]."""
    mean = moments.diagonal().mean()
    while True:
        damped = moments + torch.eye(len(moments), device=moments.device) * (damping * mean)
        lower, failure = torch.linalg.cholesky_ex(damped)
        if not failure:
            inverse = torch.cholesky_inverse(lower)
            factor: Tensor
            factor, failure = torch.linalg.cholesky_ex(inverse, upper=True)
            if not failure:
                return factor
        if damping > _MOST_DAMPING:
            raise QuantizeError(
                "what the calibration's text gives as inputs of a matrix is beyond float32, so "
                "rounding cannot be solved for it; choose other text, or --method rtn"
            )
        damping = max(10 * damping, 1e-4)
