"""AWQ: the weights of inputs that are large are scaled up, so that rounding spares them.

A product stays the same where its inputs are divided by what its weights are multiplied by; but
what rounding costs does not, and the best of a few powers of the inputs' sizes is searched.
Source: Lin et al. 2024 (AWQ) §3.2; the weights' own sizes count as in its published code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_runtime.quantizing.grid import Grid
from forebay_runtime.quantizing.input_statistics import InputStatistics
from forebay_runtime.quantizing.scale_search import search_scales

Tie = Callable[[Tensor], Tensor]
"""Gives inputs that must share a factor the mean of theirs: [K] to [K]."""


@dataclass(frozen=True)
class Part:
    """A matrix [N, K] float32, and how much a share of its outputs counts beside the others'."""

    weight: Tensor
    importance: float = 1.0


_NUM_POWERS = 10
_LEAST = 1e-4


def search_factors(parts: Sequence[Part], inputs: InputStatistics, grid: Grid, tie: Tie) -> Tensor:
    """What to multiply each input's weights by, so that rounding costs the outputs least: [K].

    parts: matrices of the same inputs. What rounding costs each counts as a share of its outputs,
    by its importance.
    """
    moments = inputs.moments
    of_inputs = tie(inputs.sizes)
    of_weights = tie(torch.cat([_shares_of_largest(part.weight, grid) for part in parts]).mean(0))
    counts = [part.importance / max(_power(part.weight, moments), 1e-30) for part in parts]
    best, least = torch.ones_like(of_inputs), float("inf")
    for factors in _candidates(of_inputs, of_weights):
        costs = (_cost(part.weight, factors, moments, grid) for part in parts)
        cost = sum(count * each for count, each in zip(counts, costs, strict=True))
        if cost < least:
            best, least = factors, cost
    return best


def _candidates(of_inputs: Tensor, of_weights: Tensor) -> Iterator[Tensor]:
    """Powers of the inputs' sizes, alone and over the weights' own; the first is all ones."""
    for step in range(_NUM_POWERS):
        power = step / _NUM_POWERS
        yield _centred(of_inputs.pow(power))
        yield _centred(of_inputs.pow(power) / (of_weights.pow(1 - power) + _LEAST))


def _centred(factors: Tensor) -> Tensor:
    """As many times over one as under it."""
    factors = factors.clamp(min=_LEAST)
    return factors / (factors.max() * factors.min()).sqrt()


def _shares_of_largest(weight: Tensor, grid: Grid) -> Tensor:
    """Each weight's size as a share of its group's largest: [N, K]."""
    groups: Tensor = weight.abs().unflatten(1, (-1, grid.size(weight.shape[1])))
    return groups.div_(groups.amax(2, keepdim=True).clamp(min=1e-12)).flatten(1)


def _cost(weight: Tensor, factors: Tensor, moments: Tensor, grid: Grid) -> float:
    """What rounding to nearest costs the outputs, with such factors."""
    groups = (weight * factors).unflatten(1, (-1, grid.size(weight.shape[1])))
    scales, zeros = (each.unsqueeze(2) for each in search_scales(groups, grid))
    rounded = grid.encode(groups, scales, zeros).sub_(zeros).mul_(scales).flatten(1)
    errors = rounded.div_(factors).sub_(weight)
    return _power(errors, moments)


def _power(weight: Tensor, moments: Tensor) -> float:
    """The mean square of the outputs, summed over these. Shapes: weight [N, K]."""
    return float((weight @ moments).mul_(weight).sum())
