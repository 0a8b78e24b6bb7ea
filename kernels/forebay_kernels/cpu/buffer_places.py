"""Where buffers lie in one piece of memory, so that those whose lives do not meet may share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a line of the cache."""


@dataclass(frozen=True)
class Life:
    """A buffer is written first and read last by the instructions of these numbers."""

    num_bytes: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Do both hold something at the same time?"""
        return self.first <= other.last and other.first <= self.last


def place_buffers(lives: Sequence[Life]) -> tuple[list[int], int]:
    """The offset of each buffer, and the bytes of all together: the largest first, each as low as
    those that it meets leave it."""
    offsets = [0] * len(lives)
    placed: list[int] = []
    for index in sorted(range(len(lives)), key=lambda index: -lives[index].num_bytes):
        taken = sorted(
            (offsets[other], offsets[other] + lives[other].num_bytes)
            for other in placed
            if lives[index].meets(lives[other])
        )
        offset = 0
        for start, end in taken:
            if offset + lives[index].num_bytes <= start:
                break
            offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
        offsets[index] = offset
        placed.append(index)
    ends = (offset + life.num_bytes for offset, life in zip(offsets, lives, strict=True))
    return offsets, max(ends, default=0)
