"""What is done with whole rows of scores, by the CPU's own kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forebay_kernels.cpu.library import native
from forebay_kernels.cpu.sampling import Draw, NativeSampling
from forebay_kernels.cpu.score_rows import ScoreRows, Scores
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_runtime.sampling.draw import Row, TorchDrawing
from forebay_runtime.sampling.portable_choice import Drawing
from forebay_runtime.sampling.scores import Ranking


def choose_drawing(most_rows: int, num_threads: int) -> Drawing:
    """By the CPU's own kernels where there are any, which share rows among threads.

    most_rows: that one of torch's calls may take.
    """
    if native() is None:
        return TorchDrawing(most_rows)
    return NativeDrawing(NativeSampling(ThreadPool(num_threads) if num_threads > 1 else None))


class NativeDrawing:
    """The same tokens as TorchDrawing's, but where two all but tie."""

    def __init__(self, sampling: NativeSampling) -> None:
        """sampling: the kernels and their threads."""
        self._sampling = sampling

    def find_best(self, logits: Scores) -> tuple[list[int], list[float]]:
        """Each row's best token and its score, NaN where any is. Shapes: logits [R, V] float32."""
        return self._sampling.find_best(_as_rows(logits))

    def draw(self, logits: Scores, rows: Sequence[int], owners: Sequence[Row]) -> list[int]:
        """A token by chance of each of some rows, whose best scores are finite."""
        return self._sampling.draw(
            _as_rows(logits),
            [_to_draw(row, owner) for row, owner in zip(rows, owners, strict=True)],
        )

    def rank(self, logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
        """Each row's token ranked, as rank_tokens has it."""
        num_top = min(num_top, logits.shape[1])
        ranked = self._sampling.rank(ScoreRows.of(logits), token_ids.numpy(), num_top)
        return Ranking(token_ids, *map(torch.from_numpy, ranked))


def _as_rows(logits: Scores) -> ScoreRows:
    return logits if isinstance(logits, ScoreRows) else ScoreRows.of(logits)


def _to_draw(row: int, owner: Row) -> Draw:
    sampling = owner.sampling
    return Draw(
        row, owner.draw(), sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p
    )
