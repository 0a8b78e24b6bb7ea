"""Which part of a model a rank holds: of each tensor, and of the layers.

Pure numbers: the reader cuts by them, and the layers take their sizes from them. A model on one
device is the whole of one shard and the whole of one stage.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """One of `size` equal parts of what tensor parallelism splits."""

    rank: int = 0
    size: int = 1

    @property
    def is_whole(self) -> bool:
        """Is there no other part?"""
        return self.size == 1

    def share(self, total: int) -> int:
        """How much of a total each part has.

        Raises: ValueError if it does not divide.
        """
        if total % self.size:
            raise ValueError(f"{total} does not divide over {self.size} ranks")
        return total // self.size

    def part(self, total: int) -> slice:
        """Where this part lies in a total."""
        share = self.share(total)
        return slice(self.rank * share, (self.rank + 1) * share)

    def of_copies(self, total: int) -> Shard:
        """The part of a total of which more ranks than there are hold copies, as of KV heads."""
        if self.size <= total:
            return self
        num_copies = self.size // total
        return Shard(self.rank // num_copies, total)


WHOLE = Shard()


@dataclass(frozen=True)
class Block:
    """Rows of a stored matrix that are split as one; a matrix may hold several, as fused ones do.

    num_rows: of all ranks together.
    """

    num_rows: int
    shard: Shard = WHOLE

    @property
    def num_own_rows(self) -> int:
        """Rows of this rank."""
        return self.shard.share(self.num_rows)


@dataclass(frozen=True)
class Stage:
    """The layers [start, stop) of a rank, of num_layers in all."""

    start: int
    stop: int
    num_layers: int

    @property
    def is_whole(self) -> bool:
        """Are these all layers?"""
        return self.is_first and self.is_last

    @property
    def is_first(self) -> bool:
        """Does it embed the tokens?"""
        return self.start == 0

    @property
    def is_last(self) -> bool:
        """Does it score the vocabulary?"""
        return self.stop == self.num_layers
