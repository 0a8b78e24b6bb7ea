"""Reads a rank's part of a model's tensors into place, several side by side in one product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_kernels import ops
from forebay_runtime.loading.checkpoint import Checkpoint, read_tensor
from forebay_runtime.loading.cut import ALL, Cut
from forebay_runtime.models.shard import WHOLE, Block, Shard


@dataclass(frozen=True)
class Placement:
    """Where and in which dtype weights live."""

    dtype: torch.dtype
    device: torch.device


class WeightReader:
    """One checkpoint's tensors, by Hugging Face's names, for one place."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        placement: Placement,
        norm_offset: int,
        shard: Shard = WHOLE,
    ) -> None:
        """norm_offset: what a norm's weights lack where the checkpoint keeps them as trained.

        shard: the part that split_outputs and split_inputs read; all else is read whole.
        """
        self._checkpoint = checkpoint
        self._placement = placement
        self._norm_offset = norm_offset
        self._shard = shard

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

    def vocabulary(self, name: str, num_rows: int, num_columns: int, num_own_rows: int) -> Tensor:
        """This rank's num_own_rows of a matrix; those beyond its num_rows are zeros."""
        start = min(num_rows, self._shard.rank * num_own_rows)
        stop = min(num_rows, start + num_own_rows)
        out = self._empty(num_own_rows, num_columns)
        cut = Cut((num_rows, num_columns), slice(start, stop))
        read_tensor(self._checkpoint, name, out[: stop - start], cut)
        out[stop - start :] = 0
        return out

    def linear(self, prefix: str, parts: Mapping[str, int], num_inputs: int) -> ops.Linear:
        """One product of several parts (name → outputs), whole, with the biases that are there."""
        blocks = {name: (Block(num_rows),) for name, num_rows in parts.items()}
        return self.split_outputs(prefix, blocks, num_inputs)

    def split_outputs(
        self, prefix: str, parts: Mapping[str, Sequence[Block]], num_inputs: int
    ) -> ops.Linear:
        """One product of several parts (name → blocks of outputs), of each block this rank's own.

        A part with several blocks is a matrix that was stored fused.
        """
        names = [f"{prefix}.{part}" for part in parts]
        blocks = list(parts.values())
        sizes = [sum(block.num_own_rows for block in each) for each in blocks]
        weight = self._empty(sum(sizes), num_inputs)
        for name, each, rows in zip(names, blocks, weight.split(sizes), strict=True):
            self._read_blocks(f"{name}.weight", each, (num_inputs,), rows)
        has_bias = [self._checkpoint.has(f"{name}.bias") for name in names]
        if not any(has_bias):
            return ops.Linear(weight)
        bias = self._empty(sum(sizes)).zero_()
        for name, each, rows, is_there in zip(
            names, blocks, bias.split(sizes), has_bias, strict=True
        ):
            if is_there:
                self._read_blocks(f"{name}.bias", each, (), rows)
        return ops.Linear(weight, bias)

    def split_inputs(self, name: str, num_outputs: int, num_inputs: int) -> ops.Linear:
        """This rank's inputs of a product, whose results add up over ranks: one has the bias."""
        columns = self._shard.part(num_inputs)
        weight = self._empty(num_outputs, columns.stop - columns.start)
        cut = Cut((num_outputs, num_inputs), columns=columns)
        read_tensor(self._checkpoint, f"{name}.weight", weight, cut)
        if self._shard.rank or not self._checkpoint.has(f"{name}.bias"):
            return ops.Linear(weight)
        bias = read_tensor(self._checkpoint, f"{name}.bias", self._empty(num_outputs))
        return ops.Linear(weight, bias)

    def _read_blocks(
        self, name: str, blocks: Sequence[Block], width: tuple[int, ...], out: Tensor
    ) -> None:
        """Read this rank's rows of each block into out, one block after another."""
        shape = (sum(block.num_rows for block in blocks), *width)
        sizes = [block.num_own_rows for block in blocks]
        for rows, target in zip(_own_rows(blocks), out.split(sizes), strict=True):
            read_tensor(self._checkpoint, name, target, Cut(shape, rows))

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)


def _own_rows(blocks: Sequence[Block]) -> Iterator[slice]:
    """Where in the stored matrix this rank's rows of each block lie."""
    start = 0
    for block in blocks:
        own = block.shard.part(block.num_rows)
        is_all = len(blocks) == 1 and block.shard.is_whole
        yield ALL if is_all else slice(start + own.start, start + own.stop)
        start += block.num_rows
