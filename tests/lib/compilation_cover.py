"""The few shipped compilations that CI does: every kernel for every architecture, and every value
of every constant of a kernel for one of them."""

from collections.abc import Iterator
from typing import Any

from forebay_kernels.gpu.architecture import SHIPPED
from forebay_kernels.gpu.compiling.inventory import shipped
from forebay_kernels.gpu.compiling.parallel_compilation import Job
from forebay_kernels.gpu.variant import Variant


def choose_cover() -> list[Job]:
    """Greedily, what shows the most that is not shown yet."""
    shown_by = {
        Job(architecture.name, variant.name): set(_shown(architecture.name, variant))
        for architecture in SHIPPED
        for variant in shipped(architecture)
    }
    left = {shown for shows in shown_by.values() for shown in shows}
    chosen = []
    while left:
        best = max(shown_by, key=lambda job: len(shown_by[job] & left))
        chosen.append(best)
        left -= shown_by[best]
    return chosen


def _shown(architecture: str, variant: Variant) -> Iterator[tuple[Any, ...]]:
    """What compiling a variant shows: all but the tiles, which only the whole inventory shows."""
    kernel = variant.kernel.__name__
    yield kernel, architecture
    yield from ((kernel, name, kind) for name, kind in variant.signature.items())
    for name, value in variant.constants.items():
        if name not in variant.launch.tiles:
            yield kernel, name, repr(value)
