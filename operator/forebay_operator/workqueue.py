"""One queue of keys: each is worked on by one worker at a time, and however often it was added it
waits once.

Failing keys come back after a growing, jittered delay; any key can be put back for later.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Callable

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
        self._ready: dict[Key, None] = {}
        self._active: set[Key] = set()
        self._again: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._timers: list[tuple[float, Key]] = []
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key) -> None:
        """Have a key worked on soon; once more afterwards if it is worked on just now."""
        if key in self._active:
            self._again.add(key)
        else:
            self._ready[key] = None
            self._changed.set()

    def add_later(self, key: Key, delay_seconds: float) -> None:
        """Have a key worked on after a delay, which replaces any longer delay it waits for."""
        due = self._clock() + delay_seconds
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._timers, (due, key))
            self._changed.set()

    def retry(self, key: Key) -> float:
        """Have a failed key worked on after its back-off; the seconds until then."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        doubled = FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 16)
        delay = min(doubled, LONGEST_DELAY_SECONDS)
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
        del self._ready[key]
        self._active.add(key)
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
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _release_due(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            due, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

    def _seconds_to_next(self) -> float | None:
        return max(0.0, self._timers[0][0] - self._clock()) if self._timers else None
