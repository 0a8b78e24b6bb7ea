"""Scores of a step's sampled rows as the CPU's kernels read them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class ScoreRows(NamedTuple):
    """Rows of float32 scores side by side in the host's memory, and where that is.

    Made once for what stays: to ask a tensor costs a small step more than to find its tokens.
    """

    whole: Tensor
    """At least those rows, from the same address on."""
    address: int
    num_rows: int
    num_tokens: int

    @classmethod
    def of(cls, scores: Tensor) -> ScoreRows:
        """All rows of a tensor; a copy, where they do not lie side by side as float32.

        Shapes: scores [R, V], on a CPU.
        """
        plain = scores.float().contiguous()
        return cls(plain, plain.data_ptr(), *plain.shape)

    def first(self, num_rows: int) -> ScoreRows:
        """The first rows."""
        return ScoreRows(self.whole, self.address, num_rows, self.num_tokens)

    @property
    def tensor(self) -> Tensor:
        """[R, V]."""
        return self.whole[: self.num_rows]


Scores = Tensor | ScoreRows
"""[R, V], float32."""


def to_tensor(scores: Scores) -> Tensor:
    """The same rows. Shapes: out [R, V]."""
    return scores.tensor if isinstance(scores, ScoreRows) else scores
