"""A quantised weight matrix, number by number: what every packed form is made from.

It is held only while a matrix is read; products take packed forms of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class CodeMatrix:
    """N outputs by K inputs; the weight of a code is code * scale + min, or (code - zero) * scale.

    codes: [N, K] uint8, below 2 ** bits. scales, mins: [G, N], any float dtype; without mins every
    zero is the middle code, 2 ** (bits - 1). group_size: inputs that share a scale.
    """

    codes: Tensor
    scales: Tensor
    bits: int
    group_size: int
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
            groups.sub_(1 << (self.bits - 1))
        weight: Tensor = groups.mul_(_spread(self.scales))
        if self.mins is not None:
            weight.add_(_spread(self.mins))
        return weight.flatten(1)


def can_merge(one: CodeMatrix, other: CodeMatrix) -> bool:
    """Are inputs, bits, groups and whether there are mins the same, so that they can be one?"""
    return _kind(one) == _kind(other)


def merge_rows(parts: Sequence[CodeMatrix]) -> CodeMatrix:
    """Several matrices over the same inputs as one, outputs in the order of the parts.

    Raises: ValueError if they are of different kinds, and so cannot be one.
    """
    first = parts[0]
    if not all(can_merge(first, other) for other in parts[1:]):
        raise ValueError("matrices of codes that differ in kind cannot be one; keep them apart")
    mins = [part.mins for part in parts if part.mins is not None]
    return replace(
        first,
        codes=torch.cat([part.codes for part in parts]),
        scales=torch.cat([part.scales for part in parts], 1),
        mins=torch.cat(mins, 1) if mins else None,
    )


def _kind(matrix: CodeMatrix) -> tuple[int, int, int, bool]:
    return matrix.num_inputs, matrix.bits, matrix.group_size, matrix.mins is not None


def _spread(numbers: Tensor) -> Tensor:
    """Of [G, N], as float32 [N, G, 1]."""
    return numbers.T.unsqueeze(2).to(torch.float32)
