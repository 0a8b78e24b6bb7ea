"""One queue of keys: each is worked on by one worker at a time, and however often it was added it
waits once.

Failing keys come back after a growing, jittered delay; any key can be put back for later.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Callable, Mapping

from forebay_operator.observed import Key

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0


class WorkQueue:
    """A deduplicating queue with delays; `get` and `done` bracket the work on a key."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self.waited: Callable[[float], None] = lambda seconds: None
        """Told how long each key was due before its turn came."""
        self._ready: dict[Key, float] = {}
        """Keys that are due, and since when."""
        self._active: dict[Key, float] = {}
        """Keys in work, and since when."""
        self._again: dict[Key, float] = {}
        """Keys in work that became due once more, and since when."""
        self._due: dict[Key, float] = {}
        self._timers: list[tuple[float, Key]] = []
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key) -> None:
        """Have a key worked on soon; once more afterwards if it is worked on just now."""
        self._add_since(key, self._clock())

    def add_later(self, key: Key, delay_seconds: float) -> None:
        """Have a key worked on after a delay, which replaces any longer delay it waits for."""
        due = self._clock() + delay_seconds
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._timers, (due, key))
            self._changed.set()

    def retry(self, key: Key, longest_seconds: float | None = None) -> float:
        """Have a failed key worked on after its back-off; the seconds until then."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        doubled = FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 16)
        delay = min(doubled, longest_seconds or LONGEST_DELAY_SECONDS)
        delay *= 0.75 + 0.5 * self._jitter()
        self.add_later(key, delay)
        return delay

    def succeeded(self, key: Key) -> None:
        """Start the key's next back-off from the beginning."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop all that is kept about a key that is gone."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        self._ready.pop(key, None)

    def take(self) -> Key | None:
        """The next key that is due, now in work; None if there is none."""
        self._release_due()
        if not self._ready:
            return None
        key = next(iter(self._ready))
        self._active[key] = self._clock()
        self.waited(self._active[key] - self._ready.pop(key))
        return key

    async def get(self) -> Key:
        """Wait for the next key that is due."""
        while True:
            self._changed.clear()
            key = self.take()
            if key is not None:
                return key
            try:
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """End the work on a key."""
        self._active.pop(key, None)
        if key in self._again:
            self._add_since(key, self._again.pop(key))

    @property
    def depth(self) -> int:
        """How many keys are due."""
        return len(self._ready) + len(self._again)

    @property
    def oldest_seconds(self) -> float:
        """For how long the oldest of them is; 0 if there is none."""
        return self._seconds_since(self._ready)

    @property
    def longest_work_seconds(self) -> float:
        """For how long a key is in work, at most; 0 if none is."""
        return self._seconds_since(self._active)

    def _seconds_since(self, times: Mapping[Key, float]) -> float:
        return self._clock() - min(times.values()) if times else 0.0

    def _add_since(self, key: Key, since: float) -> None:
        if key in self._active:
            self._again.setdefault(key, since)
        else:
            self._ready.setdefault(key, since)
            self._changed.set()

    def _release_due(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            due, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

    def _seconds_to_next(self) -> float | None:
        return max(0.0, self._timers[0][0] - self._clock()) if self._timers else None
