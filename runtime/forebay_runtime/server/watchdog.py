"""Is the engine getting anywhere? Two clocks: of the step in progress, and of the last progress.

A step may hang; or steps may go round and round and compute nothing while requests wait. Either is
found out by a limit that no healthy engine reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from forebay_runtime.request import Load, Output

STALL_FACTOR = 10
"""So many times slower than the slowest step of warm-up is stuck."""


class Watchdog:
    """Told of steps and work; asked whether the engine is stalled."""

    def __init__(
        self, min_stall_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """min_stall_seconds: nothing is called stalled before."""
        self._clock = clock
        self._limit_seconds = self._min_seconds = min_stall_seconds
        self._step_started_at: float | None = None
        self._progressed_at = self._clock()

    def learn(self, slowest_warm_step_seconds: float) -> None:
        """Warm-up has shown how long a step may take."""
        self._limit_seconds = max(self._min_seconds, STALL_FACTOR * slowest_warm_step_seconds)

    def begin_step(self) -> None:
        """A step begins; called on the engine's thread, as is end_step."""
        self._step_started_at = self._clock()

    def end_step(self) -> None:
        """The step has ended."""
        self._step_started_at = None

    def wake(self) -> None:
        """There is work again after there was none."""
        self._progressed_at = self._clock()

    def see(self, outputs: Sequence[Output], load: Load) -> None:
        """Look at what a step did."""
        if load.num_step_tokens or any(o.token_ids or o.finish_reason for o in outputs):
            self._progressed_at = self._clock()

    def is_stalled(self, has_work: bool) -> bool:
        """Is a step stuck, or is there work and none of it was done for too long?"""
        now, started_at = self._clock(), self._step_started_at
        if started_at is not None and now - started_at > self._limit_seconds:
            return True
        return has_work and now - self._progressed_at > self._limit_seconds
