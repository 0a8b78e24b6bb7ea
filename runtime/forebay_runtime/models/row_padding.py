"""To how many rows a step's are padded.

A matrix product with a new number of rows is compiled or tuned anew, so rows are padded to few
sizes, and warm-up runs each. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator

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
