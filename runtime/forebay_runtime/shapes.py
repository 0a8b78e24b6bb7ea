"""Shapes that cost something the first time, and whether warm-up has met them.

A matrix product with a new number of rows is compiled or tuned anew, so rows are padded to few
sizes, warm-up runs each, and what is met for the first time later is counted. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_SIZES_AN_OCTAVE = 4


def padded_size(num_rows: int) -> int:
    """The number of rows that num_rows are padded to: exact up to 8, then four sizes an octave."""
    if num_rows <= 2 * _SIZES_AN_OCTAVE:
        return num_rows
    step = 1 << ((num_rows - 1).bit_length() - _SIZES_AN_OCTAVE.bit_length())
    return -(-num_rows // step) * step


def padded_sizes(most_rows: int) -> Iterator[int]:
    """All padded sizes that 1 … most_rows can have, ascending."""
    num_rows = 1
    while True:
        num_rows = padded_size(num_rows)
        yield num_rows
        if num_rows >= most_rows:
            return
        num_rows += 1


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
