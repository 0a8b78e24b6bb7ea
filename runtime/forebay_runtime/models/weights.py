"""Reads a model's tensors into place, several side by side where one product will use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_runtime.loading.checkpoint import Checkpoint, read_tensor


@dataclass(frozen=True)
class Placement:
    """Where and in which dtype weights live."""

    dtype: torch.dtype
    device: torch.device


class WeightReader:
    """One checkpoint's tensors, by Hugging Face's names, for one place."""

    def __init__(self, checkpoint: Checkpoint, placement: Placement, norm_offset: int) -> None:
        """norm_offset: what a norm's weights lack where the checkpoint keeps them as trained."""
        self._checkpoint = checkpoint
        self._placement = placement
        self._norm_offset = norm_offset

    def vector(self, name: str, size: int) -> Tensor:
        """A vector in float32, on the CPU: factors, that weights are made of."""
        return read_tensor(self._checkpoint, name, torch.empty(size))

    def norm(self, name: str, size: int) -> Tensor:
        """A norm's weights. Stored less an offset they stay wide, as they were meant to round."""
        if not self._norm_offset:
            return read_tensor(self._checkpoint, name, self._empty(size))
        weight = torch.empty(size, device=self._placement.device)
        read_tensor(self._checkpoint, name, weight)
        return weight if self._checkpoint.has_whole_norms else weight.add_(self._norm_offset)

    def matrix(self, name: str, num_rows: int, num_columns: int) -> Tensor:
        """A matrix as it is."""
        return read_tensor(self._checkpoint, name, self._empty(num_rows, num_columns))

    def linear(self, prefix: str, parts: Mapping[str, int], num_inputs: int) -> ops.Linear:
        """One product of several parts (name → outputs), with the biases that are there."""
        names = [f"{prefix}.{part}" for part in parts]
        sizes = list(parts.values())
        weight = self._empty(sum(sizes), num_inputs)
        for name, rows in zip(names, weight.split(sizes), strict=True):
            read_tensor(self._checkpoint, f"{name}.weight", rows)
        has_bias = [self._checkpoint.has(f"{name}.bias") for name in names]
        if not any(has_bias):
            return ops.Linear(weight)
        bias = self._empty(sum(sizes)).zero_()
        for name, rows, is_there in zip(names, bias.split(sizes), has_bias, strict=True):
            if is_there:
                read_tensor(self._checkpoint, f"{name}.bias", rows)
        return ops.Linear(weight, bias)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)
