"""What a step does for the first time after warm-up, which should have met it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable


class ShapeLog:
    """Remembers what was run; counts what is new once warm."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()
        self._is_warm = False
        self._num_new = 0
        self._watched: list[Callable[[], int]] = []
        self._num_before = 0

    @property
    def num_cold(self) -> int:
        """What was met for the first time since warm-up ended."""
        return self._num_new + (self._count() - self._num_before if self._is_warm else 0)

    def note(self, kind: str, size: int) -> None:
        """Say that a size of a kind of work is about to run."""
        if (kind, size) in self._seen:
            return
        self._seen.add((kind, size))
        if self._is_warm:
            self._num_new += 1

    def watch(self, count: Callable[[], int]) -> None:
        """Count also what others count: count says how often they met something new so far."""
        self._watched.append(count)

    def end_warm_up(self) -> None:
        """From here on, what is new is cold."""
        self._num_before = self._count()
        self._is_warm = True

    def _count(self) -> int:
        return sum(count() for count in self._watched)
