"""How busy the GPUs are, for who asks more often than the driver measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

FRESH_SECONDS = 1.0
"""The driver's own window is a sixth of a second to one second long."""


class GpuUtilization:
    """One number for all GPUs that this process may see, read at most once a second."""

    def __init__(self, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """nvml is what open_nvml gave."""
        self._nvml = nvml
        self._clock = clock
        self._read_at = float("-inf")
        self._share: float | None = None

    def read(self) -> float | None:
        """The mean of the GPUs that tell, from 0 to 1; None where none does."""
        if self._clock() - self._read_at >= FRESH_SECONDS:
            shares = list(self._shares())
            self._share = sum(shares) / len(shares) if shares else None
            self._read_at = self._clock()
        return self._share

    def _shares(self) -> Iterator[float]:
        nvml = self._nvml
        try:
            gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError:  # the driver is being reset, or is gone
            return
        for gpu in gpus:
            try:
                yield nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100
            except nvml.NVMLError:  # a slice of a GPU does not tell
                continue
