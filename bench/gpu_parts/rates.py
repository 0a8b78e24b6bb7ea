"""What this GPU can do at best: the two rates that other parts are measured against."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gpu_parts.figure import Figure
from gpu_parts.run import Run
from gpu_parts.timing import seconds_of

COPY = "copy bandwidth, read and written"
GEMM = "square product by torch"


def measure(run: Run) -> Iterator[Figure]:
    """A copy within the GPU's memory, and a product of random matrices."""
    yield Figure(COPY, _copied_per_second(run) / 1e9, "GB/s")
    yield Figure(GEMM, _flops_per_second(run) / 1e12, "TFLOP/s")


def _copied_per_second(run: Run) -> float:
    source = torch.zeros(run.sizes.copied_bytes // 4, device=run.device)
    target = torch.empty_like(source)
    copies = [lambda: target.copy_(source)] * 4
    return 2 * source.nbytes / seconds_of(copies, run.device, run.sizes.repeats)


def _flops_per_second(run: Run) -> float:
    size = run.sizes.gemm
    a, b = (torch.randn(size, size, device=run.device, dtype=run.dtype) for _ in range(2))
    products = [lambda: a @ b] * 8
    return 2 * size**3 / seconds_of(products, run.device, run.sizes.repeats)
