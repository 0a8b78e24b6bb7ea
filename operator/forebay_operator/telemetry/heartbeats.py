"""When each of several things was last known to live: loops of this process, and watches."""

import time
from collections.abc import Callable, Mapping


class Heartbeats:
    """Ages by name. What never beat has not begun, and is not waited for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beaten_at: dict[str, float] = {}

    def beat(self, name: str) -> None:
        """It lives."""
        self._beaten_at[name] = self._clock()

    def ages(self) -> dict[str, float]:
        """Seconds since the last beat, by name."""
        now = self._clock()
        return {name: now - at for name, at in self._beaten_at.items()}

    def silent(self, limits: Mapping[str, float]) -> dict[str, float]:
        """The ages of those that are older than their limit; who has no limit never is."""
        ages = self.ages()
        return {name: ages[name] for name, limit in limits.items() if ages.get(name, 0.0) > limit}
