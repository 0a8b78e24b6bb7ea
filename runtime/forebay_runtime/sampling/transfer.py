"""Numbers between the host and a device, while the device goes on with other things."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT = 16
"""Bytes; kernels may read whole vectors from where an array begins."""


def send(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Arrays on a device, in one copy, which what is launched after it waits for."""
    begins = [0]
    for array in arrays:
        begins.append(begins[-1] + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
    is_gpu = device.type == "cuda"
    # What is pinned is not reused before its copies are done: torch sees to that.
    block = torch.empty(max(1, begins[-1]), dtype=torch.uint8, pin_memory=is_gpu)
    memory = block.numpy()
    for array, begin in zip(arrays, begins, strict=False):
        memory[begin : begin + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).ravel()
    sent = block.to(device, non_blocking=True)
    return [
        sent[begin : begin + array.nbytes].view(_dtype(array)).view(array.shape)
        for array, begin in zip(arrays, begins, strict=False)
    ]


def _dtype(array: NDArray[Any]) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, array.dtype.name)
    return dtype


class HostCopies:
    """Tensors on their way to the host, beside what the device goes on with."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Start to copy; none of them may be written from here on."""
        self._tensors = tensors
        """Held until the copies are done, as another stream reads them."""
        self._copies = tensors
        self._copied: torch.cuda.Event | None = None
        if tensors and tensors[0].is_cuda:
            stream = _copy_stream(tensors[0].device)
            stream.wait_stream(torch.cuda.current_stream(tensors[0].device))
            with torch.cuda.stream(stream):
                self._copies = [each.to("cpu", non_blocking=True) for each in tensors]
                self._copied = torch.cuda.Event()
                self._copied.record(stream)

    def is_over(self) -> bool:
        """Are they all there? Never where the host is the device."""
        return self._copied is not None and self._copied.query()

    def wait(self) -> Sequence[Tensor]:
        """All of them, on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        self._tensors = ()
        return self._copies


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
