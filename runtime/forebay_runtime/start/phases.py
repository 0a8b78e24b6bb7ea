"""The phases of a start: what each takes of time and memory, and what to change where one fails.

The engine's assembly goes through them; metrics and the log tell them. Imports no torch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from forebay_budget.quantity import format_bytes

logger = logging.getLogger(__name__)


class Phase(StrEnum):
    """What a start is made of, in its order; kernels only where they are compiled."""

    CONTEXT = "context"
    """Open the device."""
    KERNELS = "kernels"
    """Compile, or find compiled, all that the model launches."""
    WEIGHTS = "weights"
    TRIAL = "trial"
    """Run the largest steps over a small KV cache, to measure what is left for the whole one."""
    KV_CACHE = "kv_cache"
    SHAPES = "shapes"
    """Run every shape that serving can meet."""
    GRAPHS = "graphs"
    """Capture decode steps."""


class Start:
    """How far a start has come: seconds and bytes by phase, those of a phase entered twice added.

    used_bytes: what is in use on the device now, whoever uses it.
    """

    def __init__(
        self, used_bytes: Callable[[], int], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.seconds: dict[Phase, float] = {}
        self.taken_bytes: dict[Phase, int] = {}
        self._used_bytes = used_bytes
        self._clock = clock

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Measure what is done meanwhile; where it fails, nothing is kept."""
        began, used_bytes = self._clock(), self._used_bytes()
        yield
        seconds, num_bytes = self._clock() - began, self._used_bytes() - used_bytes
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        self.taken_bytes[phase] = self.taken_bytes.get(phase, 0) + num_bytes
        logger.info(
            "Went through a phase of the start phase=%s seconds=%.2f took=%s",
            phase,
            seconds,
            format_bytes(num_bytes) if num_bytes >= 0 else f"-{format_bytes(-num_bytes)}",
        )
