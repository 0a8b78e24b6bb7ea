"""What weights are rounded to: codes of few bits, with a scale and a zero point for each group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

_LEAST_SCALE = 2.0**-24
"""The least that float16 holds."""

_LEAST_ZERO = 1
"""GPTQ's format stores zero points less one, and loaders differ in what -1 is."""


@dataclass(frozen=True)
class Grid:
    """bits: 4 or 8. group_size: inputs that share a scale; 0: all of a row.

    is_symmetric: every zero point is the middle code.
    """

    bits: int
    group_size: int
    is_symmetric: bool

    @property
    def most(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The code that means zero in a symmetric grid."""
        return 1 << (self.bits - 1)

    def size(self, num_inputs: int) -> int:
        """Inputs in a group of a matrix with so many."""
        return self.group_size or num_inputs

    def span(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Scales, as float16 holds them, and zero points by which codes reach from low to high.

        Shapes: any, all alike; low <= 0 <= high. Both are float32.
        """
        if self.is_symmetric:
            # There is one code less above zero than below.
            scales = torch.maximum(-low, high) / (self.middle - 1)
        else:
            scales = (high - low) / self.most
        scales = to_half(scales)
        if self.is_symmetric:
            return scales, torch.full_like(scales, self.middle)
        return scales, (-low / scales).round_().clamp_(_LEAST_ZERO, self.most)

    def encode(self, weight: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        """The nearest codes, in float32. Shapes: any that broadcast."""
        return (weight / scales).round_().add_(zeros).clamp_(0, self.most)


def to_half(scales: Tensor) -> Tensor:
    """Scales as float16 holds them, in float32; those too small for it become the least it has."""
    halves = scales.half().float()
    return torch.where(halves.abs() < _LEAST_SCALE, _LEAST_SCALE, halves)


@dataclass(frozen=True)
class RoundedMatrix:
    """N outputs by K inputs: weight = (code - zero) * scale.

    codes: [N, K] uint8, inputs as they come in. scales: [N, G] float32, which float16 holds.
    zeros: [N, G] float32, whole numbers. groups: [K] int64, each input's group.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor
    groups: Tensor

    def weight(self) -> Tensor:
        """What it stands for: [N, K] float32."""
        zeros, scales = (each[:, self.groups] for each in (self.zeros, self.scales))
        return self.codes.float().sub_(zeros).mul_(scales)

    def rows(self, rows: slice) -> RoundedMatrix:
        """Some of its outputs."""
        return replace(
            self, codes=self.codes[rows], scales=self.scales[rows], zeros=self.zeros[rows]
        )


def groups_in_order(num_inputs: int, size: int, device: torch.device) -> Tensor:
    """The groups of inputs that share scales as they come: [K]."""
    return torch.arange(num_inputs, device=device) // size
