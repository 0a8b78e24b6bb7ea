"""A wall clock that is set while the operator runs must not make a wait of seconds one of hours,
nor end it at once: what is remembered by wall time moves with the clock.

Only the monotonic clock knows. What objects say of their times stays as it is.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from forebay_operator.observed import ScalingMemory

LEAST_JUMP = timedelta(seconds=5)
"""Less than this is a clock that is drifting, or was slewed."""
NO_JUMP = timedelta()


class JumpWatch:
    """Compares the wall clock with the monotonic one, from look to look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._origin: datetime | None = None

    def look(self, now: datetime) -> timedelta:
        """By how much the wall clock was set since the last look."""
        origin = now - timedelta(seconds=self._clock())
        jump = NO_JUMP if self._origin is None else origin - self._origin
        self._origin = origin
        return jump if abs(jump) >= LEAST_JUMP else NO_JUMP


def shift(memory: ScalingMemory, jump: timedelta) -> ScalingMemory:
    """The same memory by the clock as it is set now."""

    def moved(at: datetime | None) -> datetime | None:
        return None if at is None else at + jump

    return replace(
        memory,
        started_at=memory.started_at + jump,
        idle_since=moved(memory.idle_since),
        sampled_at=moved(memory.sampled_at),
        reported_at=moved(memory.reported_at),
    )
