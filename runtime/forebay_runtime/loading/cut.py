"""Which part of a stored tensor is read."""

from __future__ import annotations

from dataclasses import dataclass, field

ALL = slice(None)


@dataclass(frozen=True)
class Cut:
    """A part of a tensor that has the given shape as a whole; of a vector only rows are cut.

    Slices name their start and stop, or are ALL.
    """

    shape: tuple[int, ...]
    rows: slice = field(default_factory=lambda: ALL)
    columns: slice = field(default_factory=lambda: ALL)
