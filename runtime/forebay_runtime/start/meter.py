"""Memory in use: a process's resident memory on a CPU, what the driver and torch say on a GPU."""

from __future__ import annotations

import gc
import logging
import os
from pathlib import Path

import torch

logger = logging.getLogger(__name__)


class Meter:
    """Memory in use, and the peak since it was last asked to forget."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cpu = device.type == "cpu"

    def used_bytes(self) -> int:
        """What the process holds: resident on a CPU; on a GPU all that is not free there.

        Of a GPU that was not opened yet nothing is.
        """
        if self._is_cpu:
            return _status_bytes("VmRSS")
        if not torch.cuda.is_initialized():
            return 0
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def kept_bytes(self) -> int:
        """What is used or kept for tensors: all of the process on a CPU."""
        if self._is_cpu:
            return self.used_bytes()
        return torch.cuda.memory_reserved(self._device)

    def total_bytes(self) -> int:
        """All memory of the GPU."""
        return torch.cuda.mem_get_info(self._device)[1]

    def forget_peak(self) -> None:
        """Let the next peak count from now."""
        if not self._is_cpu:
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            logger.warning("Could not reset the peak of resident memory, it includes loading")

    def peak_bytes(self) -> int:
        """How much more than used_bytes was held for a moment."""
        if self._is_cpu:
            return _status_bytes("VmHWM") - _status_bytes("VmRSS")
        # Of what the allocator holds: what a step gave back to it stays in use.
        return torch.cuda.max_memory_reserved(self._device) - torch.cuda.memory_reserved(
            self._device
        )

    def give_back(self) -> None:
        """Give back to the device what nobody holds any more."""
        if not self._is_cpu:
            gc.collect()
            torch.cuda.empty_cache()


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE")
