"""Lets a part go on where one of its cases fails, and fail at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Problems:
    """What failed so far, each told as a note at once."""

    def __init__(self) -> None:
        self._failed: list[str] = []

    @contextmanager
    def of(self, case: str) -> Iterator[None]:
        """Note what the case raises, whatever it is."""
        try:
            yield
        except Exception as problem:
            print(f"note {case}: {type(problem).__name__}: {problem}", flush=True)
            self._failed.append(case)

    def settle(self) -> None:
        """Raises: RuntimeError if a case failed."""
        if self._failed:
            raise RuntimeError(f"failed: {', '.join(self._failed)}")
