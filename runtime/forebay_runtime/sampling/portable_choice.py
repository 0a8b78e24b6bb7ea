"""Chooses a step's tokens on a CPU, which the host waits for.

What is done with whole rows of scores is a Drawing's: by native kernels, or by torch alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from forebay_kernels.cpu.score_rows import Scores, to_tensor
from forebay_kernels.outcome import BROKEN, DRAWN, NOTHING_LEFT
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.draw import Row
from forebay_runtime.sampling.edits import Edit, build_edits
from forebay_runtime.sampling.picked import Picked
from forebay_runtime.sampling.scores import Ranking


class Ahead(NamedTuple):
    """A request's token so many places after the next one."""

    request: Request
    num_ahead: int

    @property
    def sampling(self) -> SamplingParams:
        """How it is chosen."""
        return self.request.sampling

    def draw(self) -> int:
        """63 bits of chance for it."""
        return self.request.draw(self.num_ahead)


class Drawing(Protocol):
    """What is done with whole rows of scores."""

    def find_best(self, logits: Scores) -> tuple[list[int], list[float]]:
        """Each row's best token and its score, NaN where any is. Shapes: logits [R, V] float32."""

    def draw(self, logits: Scores, rows: Sequence[int], owners: Sequence[Row]) -> list[int]:
        """A token by chance of each of some rows, whose best scores are finite."""

    def rank(self, logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
        """Each row's token ranked, as rank_tokens has it."""


class _Asked(NamedTuple):
    """Whose each row is, and what it takes for granted."""

    requests: Sequence[Request]
    assumed: Sequence[tuple[int, ...]]


class PortableChoice:
    """Row by row where a request asks for something special; greedy is one argmax."""

    def __init__(self, end_token_ids: frozenset[int], drawing: Drawing) -> None:
        """end_token_ids: what min_tokens keeps away besides a request's own stop tokens."""
        self._end_token_ids = end_token_ids
        self._drawing = drawing
        self._edits: WeakKeyDictionary[Request, tuple[Edit, ...]] = WeakKeyDictionary()

    def choose(
        self, logits: Scores, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]] = ()
    ) -> Picked:
        """Each row's token.

        assumed: what each row takes for granted after its request's tokens; empty for nothing.
        """
        asked = _Asked(requests, assumed or ((),) * len(requests))
        token_ids, best = self._drawing.find_best(logits)
        outcomes = [DRAWN if math.isfinite(score) else BROKEN for score in best]
        picked = Picked(token_ids, outcomes)
        edited_rows = [row for row, request in enumerate(requests) if request.edits_scores]
        if edited_rows:
            self._pick_edited(picked, logits, edited_rows, asked)
        drawn = [
            row
            for row, request in enumerate(requests)
            if not (request.sampling.is_greedy or request.edits_scores)
        ]
        self._draw(picked, logits, {row: row for row in drawn}, asked)
        return picked

    def rank(self, logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
        """Each row's token ranked, as rank_tokens has it."""
        return self._drawing.rank(logits, token_ids, num_top)

    def _pick_edited(
        self, picked: Picked, logits: Scores, rows: Sequence[int], asked: _Asked
    ) -> None:
        """The tokens of those rows whose requests change scores before they are picked."""
        edited = self._edit(to_tensor(logits), rows, asked)
        for row, token_id, score in zip(rows, *self._drawing.find_best(edited), strict=True):
            picked.token_ids[row] = token_id
            if picked.outcomes[row] == DRAWN and not math.isfinite(score):
                picked.outcomes[row] = NOTHING_LEFT
        places = {row: place for place, row in enumerate(rows)}
        drawn = [row for row in rows if not asked.requests[row].sampling.is_greedy]
        self._draw(picked, edited, {row: places[row] for row in drawn}, asked)

    def _draw(
        self, picked: Picked, scores: Scores, place_of: Mapping[int, int], asked: _Asked
    ) -> None:
        """Draw for rows that can be drawn from; place_of: where in scores each lies."""
        rows = [row for row in place_of if picked.outcomes[row] == DRAWN]
        if not rows:
            return
        owners = [Ahead(asked.requests[row], len(asked.assumed[row])) for row in rows]
        drawn = self._drawing.draw(scores, [place_of[row] for row in rows], owners)
        for row, token_id in zip(rows, drawn, strict=True):
            picked.token_ids[row] = token_id

    @torch.inference_mode()
    def _edit(self, logits: Tensor, rows: Sequence[int], asked: _Asked) -> Tensor:
        """Copies of some rows of logits with their requests' edits. Shapes: out [rows, V]."""
        edited = logits[list(rows)]
        for scores, row in zip(edited, rows, strict=True):
            request = asked.requests[row]
            for edit in self._edits_of(request, scores):
                edit(scores, request, asked.assumed[row])
        return edited

    def _edits_of(self, request: Request, like: Tensor) -> tuple[Edit, ...]:
        edits = self._edits.get(request)
        if edits is None:
            edits = self._edits[request] = build_edits(request, self._end_token_ids, like)
        return edits
