"""The model's inputs on the device: allocated once, filled from a step's numbers by one copy.

A step's numbers lie side by side in one block of memory, so that they travel together. Where in it
depends on the step's padded sizes alone: a CUDA graph of one size finds its inputs where they were
when it was captured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay_runtime.runner.step_inputs import StepInputs

_ALIGNMENT = 16
"""Bytes; kernels read whole vectors from where each input begins."""
_MOST_REMEMBERED = 512
"""Sizes whose tensors are kept; made anew they would cost a small step a third of its time here."""


class PaddedSizes(NamedTuple):
    """How many rows a step's inputs are given: at least what it has of each."""

    num_tokens: int
    num_seqs: int
    num_sampled: int


@dataclass(frozen=True)
class StepTensors:
    """One step's inputs on the device: T tokens, S sequences and R sampled rows, all padded.

    token_ids, positions, slots, carried: [T] int64, as in StepInputs; padding has token 0 at
    position 0, slot -1 and carried -1.
    query_starts: [S + 1] int32, the first row of each sequence and the end of the last; sequences
    of padding have no rows. seq_lens: [S] int32, 0 for padding.
    sampled_rows: [R] int64, 0 for padding.
    block_tables: [S, M] int32, M the most that a sequence can have; entries past a sequence's own
    are any valid block.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    carried: Tensor
    query_starts: Tensor
    seq_lens: Tensor
    sampled_rows: Tensor
    block_tables: Tensor


class DeviceBuffers:
    """Room for the inputs of the largest step.

    On a GPU there are two blocks on the host: while one is on its way, the next step's numbers are
    written to the other. On a CPU the host's block is the device's.
    """

    def __init__(self, most: PaddedSizes, num_blocks: int, device: torch.device) -> None:
        """most: the largest step; num_blocks: the most blocks that a sequence can have."""
        self._layout = layout = _Layout(most, num_blocks)
        self._is_shared = device.type == "cpu"
        self._hosts = [_HostBlock(layout, is_pinned=not self._is_shared)]
        self._device = self._hosts[0].memory
        if not self._is_shared:
            self._hosts.append(_HostBlock(layout, is_pinned=True))
            self._device = torch.zeros(layout.num_bytes, dtype=torch.uint8, device=device)
        self._tensors: dict[PaddedSizes, StepTensors] = {}
        self._turn = 0

    def send(self, inputs: StepInputs, sizes: PaddedSizes) -> StepTensors:
        """A step's inputs on the device, padded to sizes; they stand until the next call.

        On a GPU this returns before they are there: what is launched after it waits for them.
        """
        host = self._hosts[self._turn]
        self._turn = (self._turn + 1) % len(self._hosts)
        host.write(inputs, sizes)
        if not self._is_shared:
            host.copy_to(self._device, self._layout.reach(sizes))
        return self.tensors(sizes)

    def tensors(self, sizes: PaddedSizes) -> StepTensors:
        """Where the inputs of such sizes lie on the device, with whatever stands there."""
        tensors = self._tensors.get(sizes)
        if tensors is None:
            _make_room(self._tensors)
            tensors = self._tensors[sizes] = self._layout.cut(self._device, sizes)
        return tensors


class _Layout:
    """Where in a block each input lies: the block tables at its end, all else right before them.

    So one range of bytes holds a step, and the tables lie in one place whatever the sizes: what an
    earlier step left there is blocks, which may be read though they do not count.
    """

    def __init__(self, most: PaddedSizes, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._tables_begin = _head_bytes(most)
        self.num_bytes = self._tables_begin + 4 * most.num_seqs * num_blocks

    def reach(self, sizes: PaddedSizes) -> slice:
        """The bytes of a step of such sizes."""
        end = self._tables_begin + 4 * sizes.num_seqs * self._num_blocks
        return slice(self._tables_begin - _head_bytes(sizes), end)

    def cut(self, memory: Tensor, sizes: PaddedSizes) -> StepTensors:
        """A block's inputs of such sizes."""
        begin = self.reach(sizes).start
        inputs: dict[str, Tensor] = {}
        for name, dtype, length in _head(sizes):
            end = begin + length * dtype.itemsize
            inputs[name] = memory[begin:end].view(dtype)
            begin += _aligned(end - begin)
        tables = memory[self._tables_begin :].view(torch.int32).view(-1, self._num_blocks)
        return StepTensors(**inputs, block_tables=tables[: sizes.num_seqs])


def _head(sizes: PaddedSizes) -> tuple[tuple[str, torch.dtype, int], ...]:
    """All inputs but the block tables: name, dtype, length."""
    return (
        ("token_ids", torch.int64, sizes.num_tokens),
        ("positions", torch.int64, sizes.num_tokens),
        ("slots", torch.int64, sizes.num_tokens),
        ("carried", torch.int64, sizes.num_tokens),
        ("sampled_rows", torch.int64, sizes.num_sampled),
        ("query_starts", torch.int32, sizes.num_seqs + 1),
        ("seq_lens", torch.int32, sizes.num_seqs),
    )


def _head_bytes(sizes: PaddedSizes) -> int:
    return sum(_aligned(length * dtype.itemsize) for _, dtype, length in _head(sizes))


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


class _HostBlock:
    """One block on the host, and whether its last copy has left it."""

    def __init__(self, layout: _Layout, *, is_pinned: bool) -> None:
        self.memory = torch.zeros(layout.num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
        self._layout = layout
        self._arrays: dict[PaddedSizes, dict[str, NDArray[Any]]] = {}
        self._copied = torch.cuda.Event() if is_pinned else None

    def write(self, inputs: StepInputs, sizes: PaddedSizes) -> None:
        """Write a step's numbers and the padding behind them, once the last ones have left."""
        if self._copied is not None:
            self._copied.synchronize()
        to = self._arrays_of(sizes)
        _put(to["token_ids"], inputs.token_ids, 0)
        _put(to["positions"], inputs.positions, 0)
        _put(to["slots"], inputs.slots, -1)
        _put(to["carried"], inputs.carried, -1)
        _put(to["sampled_rows"], inputs.sampled_rows, 0)
        _put(to["seq_lens"], inputs.seq_lens, 0)
        to["query_starts"][0] = 0
        _put(to["query_starts"][1:], np.cumsum(inputs.query_lens), inputs.num_tokens)
        num_seqs, num_blocks = inputs.block_tables.shape
        to["block_tables"][:num_seqs, :num_blocks] = inputs.block_tables

    def copy_to(self, device: Tensor, reach: slice) -> None:
        """Start to copy the bytes in reach to the same place there."""
        device[reach].copy_(self.memory[reach], non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def _arrays_of(self, sizes: PaddedSizes) -> dict[str, NDArray[Any]]:
        arrays = self._arrays.get(sizes)
        if arrays is None:
            _make_room(self._arrays)
            tensors = vars(self._layout.cut(self.memory, sizes))
            arrays = self._arrays[sizes] = {name: each.numpy() for name, each in tensors.items()}
        return arrays


def _put(to: NDArray[Any], values: Any, padding: int) -> None:
    """Write values, and the padding behind them."""
    num_values = len(values)
    to[:num_values] = values
    if num_values < len(to):
        to[num_values:] = padding


def _make_room(remembered: dict[PaddedSizes, Any]) -> None:
    if len(remembered) >= _MOST_REMEMBERED:
        remembered.clear()
