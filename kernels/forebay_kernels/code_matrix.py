"""A quantised weight matrix, number by number: what every packed form is made from.

It is held only while a matrix is read; products take packed forms of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CodeMatrix:
    """N outputs by K inputs; the weight of a code is (code - zero) * scale, or code * scale + min.

    codes: [N, K] uint8, below 2 ** bits. scales: [G, N], any float dtype. zeros: [G, N] uint8.
    mins: [G, N], any float dtype. At most one of these two is there; without, every zero is the
    middle code, 2 ** (bits - 1). group_size: inputs that share a scale.
    """

    codes: Tensor
    scales: Tensor
    bits: int
    group_size: int
    zeros: Tensor | None = None
    mins: Tensor | None = None

    @property
    def num_outputs(self) -> int:
        """N."""
        return self.codes.shape[0]

    @property
    def num_inputs(self) -> int:
        """K."""
        return self.codes.shape[1]

    def dequantised(self) -> Tensor:
        """The weight that this stands for, float32 [N, K]."""
        groups = self.codes.float().unflatten(1, (-1, self.group_size))
        if self.mins is None:
            groups.sub_(_spread(self.zeros) if self.zeros is not None else 1 << (self.bits - 1))
        weight: Tensor = groups.mul_(_spread(self.scales))
        if self.mins is not None:
            weight.add_(_spread(self.mins))
        return weight.flatten(1)


def _spread(numbers: Tensor) -> Tensor:
    """Of [G, N], as float32 [N, G, 1]."""
    return numbers.T.unsqueeze(2).to(torch.float32)
