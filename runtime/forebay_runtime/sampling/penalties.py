"""Penalties on tokens that have occurred, with counts that grow as tokens come."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay_runtime.request import Request

_LEAST_CAPACITY = 64


class TokenCounts:
    """Distinct tokens and how often each came, in arrays that grow by doubling."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._token_ids: NDArray[np.int64] = np.zeros(_LEAST_CAPACITY, np.int64)
        self._counts: NDArray[np.float32] = np.zeros(_LEAST_CAPACITY, np.float32)

    def add(self, token_ids: Sequence[int]) -> None:
        """Count tokens that came."""
        for token_id in token_ids:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self._token_ids):
                self._token_ids = np.concatenate((self._token_ids, np.zeros_like(self._token_ids)))
                self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
            self._token_ids[place] = token_id
            self._counts[place] += 1

    def with_more(self, token_ids: Sequence[int]) -> Self:
        """These counts and some more tokens', apart; itself where there are none."""
        if not token_ids:
            return self
        more = copy(self)
        more._places = self._places.copy()
        more._token_ids, more._counts = self._token_ids.copy(), self._counts.copy()
        more.add(token_ids)
        return more

    def token_ids(self, device: torch.device) -> Tensor:
        """The distinct tokens [n] int64."""
        return torch.from_numpy(self._token_ids[: len(self._places)]).to(device)

    def counts(self, device: torch.device) -> Tensor:
        """How often each came: [n] float32."""
        return torch.from_numpy(self._counts[: len(self._places)]).to(device)


class Penalties:
    """Makes what has occurred less likely: repetition looks at prompt and output, the others at
    the output.

    Source: Keskar et al. 2019 (CTRL) §4.1 for repetition; presence and frequency as OpenAI's API
    defines them.
    """

    def __init__(self, request: Request) -> None:
        self._output = TokenCounts()
        self._all = TokenCounts()
        self._num_counted = 0
        if request.sampling.repetition_penalty != 1:
            self._all.add(request.prompt_token_ids)

    def __call__(self, scores: Tensor, request: Request, assumed: Sequence[int]) -> None:
        """Change scores [V] in place."""
        self._count(request)
        sampling, device = request.sampling, scores.device
        if sampling.repetition_penalty != 1:
            token_ids = self._all.with_more(assumed).token_ids(device)
            seen, penalty = scores[token_ids], sampling.repetition_penalty
            scores[token_ids] = torch.where(seen > 0, seen / penalty, seen * penalty)
        if sampling.frequency_penalty or sampling.presence_penalty:
            output = self._output.with_more(assumed)
            token_ids = output.token_ids(device)
            lost = output.counts(device) * sampling.frequency_penalty
            scores[token_ids] -= lost + sampling.presence_penalty

    def _count(self, request: Request) -> None:
        """Take in what was sampled since; a preemption takes no sampled token away."""
        new = request.output_token_ids[self._num_counted :]
        self._num_counted += len(new)
        self._output.add(new)
        if request.sampling.repetition_penalty != 1:
            self._all.add(new)
