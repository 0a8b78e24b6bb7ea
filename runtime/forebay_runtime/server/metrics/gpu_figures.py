"""What each GPU does, where there is one: utilisation, temperature and memory, read at a scrape.

NVIDIA's management library answers without touching what runs on the GPU. Where it is absent, or a
figure is not to be had (a slice of a GPU has no utilisation), nothing is shown for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)


def open_nvml() -> ModuleType | None:
    """The management library, ready to be asked; None where there is no GPU to ask about."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        logger.debug("Found no GPU to watch cause=%s", exc)
        return None
    return pynvml  # type: ignore[no-any-return]


class GpuFigures(Collector):
    """Gauges of every GPU that this process may see."""

    def __init__(self, nvml: Any) -> None:
        """nvml is what open_nvml gave."""
        self._nvml = nvml

    def collect(self) -> Iterable[Metric]:
        """Yield the figures as of now."""
        nvml = self._nvml
        gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        sensor = nvml.NVML_TEMPERATURE_GPU
        figures: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
            (
                "utilization_ratio",
                "Share of the last moments in which a kernel ran, 1 is always",
                lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
            ),
            (
                "temperature_celsius",
                "The chip's temperature",
                lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, sensor),
            ),
            (
                "memory_used_bytes",
                "Memory in use, by whatever process",
                lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
            ),
            (
                "memory_total_bytes",
                "Memory that the GPU has",
                lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
            ),
        )
        for name, text, read in figures:
            gauge = GaugeMetricFamily(f"forebay:gpu_{name}", text, labels=["gpu"])
            for index, gpu in enumerate(gpus):
                try:
                    gauge.add_metric([str(index)], read(gpu))
                except nvml.NVMLError:  # this GPU does not tell
                    continue
            yield gauge
