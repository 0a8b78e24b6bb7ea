"""Chooses a step's tokens by torch alone, which the host waits for: what CPUs run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from forebay_kernels.outcome import BROKEN, DRAWN, NOTHING_LEFT
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.draw import draw_tokens
from forebay_runtime.sampling.edits import Edit, build_edits

_MOST_CPU_ROWS = 8
"""Rows of which a CPU draws at once: of more, what is computed on the way leaves its caches, and
64 rows took four times as long."""


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


class PortableChoice:
    """Row by row where a request asks for something special; greedy is one argmax."""

    def __init__(self, end_token_ids: frozenset[int], most_rows: int) -> None:
        """most_rows: that one call may take; see Sampler."""
        self._end_token_ids = end_token_ids
        self._most_rows = min(most_rows, _MOST_CPU_ROWS)
        self._edits: WeakKeyDictionary[Request, tuple[Edit, ...]] = WeakKeyDictionary()

    def choose(
        self, logits: Tensor, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]] = ()
    ) -> Tensor:
        """Each row's token. Shapes: logits [R, V]; out [2, R] int64: tokens, then outcomes.

        assumed: what each row takes for granted after its request's tokens; empty for nothing.
        """
        assumed = assumed or ((),) * len(requests)
        best, best_ids = logits.max(-1)
        token_ids: list[int] = best_ids.tolist()
        outcomes = [DRAWN if math.isfinite(score) else BROKEN for score in best.tolist()]
        edits = [self._edits_of(request, logits[0]) for request in requests]
        if any(edits):
            logits, edited = _edit_rows(logits, requests, edits, assumed)
            for row, (token_id, score) in edited.items():
                token_ids[row] = token_id
                if outcomes[row] == DRAWN and not math.isfinite(score):
                    outcomes[row] = NOTHING_LEFT
        drawn = [
            row
            for row, request in enumerate(requests)
            if not request.sampling.is_greedy and outcomes[row] == DRAWN
        ]
        ahead = [Ahead(request, len(own)) for request, own in zip(requests, assumed, strict=True)]
        for row, token_id in zip(drawn, self._draw(logits, ahead, drawn), strict=True):
            token_ids[row] = token_id
        return torch.tensor((token_ids, outcomes), dtype=torch.int64, device=logits.device)

    def _draw(self, logits: Tensor, ahead: Sequence[Ahead], rows: Sequence[int]) -> Iterator[int]:
        for start in range(0, len(rows), self._most_rows):
            few = rows[start : start + self._most_rows]
            yield from draw_tokens(logits[few], [ahead[row] for row in few])

    def _edits_of(self, request: Request, like: Tensor) -> tuple[Edit, ...]:
        edits = self._edits.get(request)
        if edits is None:
            edits = self._edits[request] = build_edits(request, self._end_token_ids, like)
        return edits


def _edit_rows(
    logits: Tensor,
    requests: Sequence[Request],
    edits: Sequence[tuple[Edit, ...]],
    assumed: Sequence[tuple[int, ...]],
) -> tuple[Tensor, dict[int, tuple[int, float]]]:
    """The logits with edits applied, and the best token of each row that has some."""
    logits = logits.clone()
    rows = [row for row, own in enumerate(edits) if own]
    for row in rows:
        for edit in edits[row]:
            edit(logits[row], requests[row], assumed[row])
    best, token_ids = logits[rows].max(-1)
    found = zip(token_ids.tolist(), best.tolist(), strict=True)
    return logits, dict(zip(rows, found, strict=True))
