"""Leads one step's logits through to tokens, logprobs and embeddings.

No row's arithmetic looks at another row, and a request that asks for nothing special pays for
nothing: greedy is one argmax. State that a request needs from step to step lives here, dies with
the request, and is not touched by preemption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from forebay_runtime.request import Request, TokenLogprobs
from forebay_runtime.sampling.draw import draw_tokens
from forebay_runtime.sampling.edits import Edit, build_edits, explain_nothing_left
from forebay_runtime.sampling.pooling import Pooler
from forebay_runtime.sampling.scores import score_prompt, score_tokens
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.step_result import Known, Sampled, StepResult

_NOT_FINITE = (
    "The model computed NaN or infinite scores for this request, so no token can be told from "
    "another; its weights may be damaged, or its --dtype too narrow for this text"
)

_MOST_CPU_ROWS = 8
"""Rows of which a CPU draws at once: of more, what is computed on the way leaves its caches, and
64 rows took four times as long."""


class Sampler:
    """Picks tokens, and tells what else was asked of a step."""

    def __init__(
        self, end_token_ids: frozenset[int] = frozenset(), *, is_batch_invariant: bool = False
    ) -> None:
        """end_token_ids: what min_tokens keeps away besides a request's own stop tokens."""
        self._end_token_ids = end_token_ids
        self._most_rows = 1 if is_batch_invariant else 2**31
        """Rows that one call may take; one alone is computed alike in every batch."""
        self._edits: WeakKeyDictionary[Request, tuple[Edit, ...]] = WeakKeyDictionary()
        self._pooler = Pooler()

    def sample(self, result: StepResult, batch: Batch) -> Known:
        """A token for each of batch.sampled, and what else their requests asked for."""
        requests = batch.sampled
        errors: dict[str, str] = {}
        with torch.inference_mode():
            token_ids = self._choose(result.logits, requests, errors) if requests else []
            errors |= dict.fromkeys(result.find_broken(), _NOT_FINITE)
            logprobs = self._score(result.logits, requests, token_ids, errors)
            prompt_logprobs, embeddings = self._read_prompts(result, batch, errors)
        sampled = Sampled(tuple(token_ids), logprobs, prompt_logprobs, embeddings, errors)
        return Known(
            sampled, torch.tensor(token_ids, dtype=torch.int64, device=result.logits.device)
        )

    def _choose(
        self, logits: Tensor, requests: Sequence[Request], errors: dict[str, str]
    ) -> list[int]:
        """Each row's token; rows that have none to choose are told in errors."""
        best, best_ids = logits.max(-1)
        token_ids: list[int] = best_ids.tolist()
        for request, score in zip(requests, best.tolist(), strict=True):
            if not math.isfinite(score):
                errors[request.request_id] = _NOT_FINITE
        edits = [self._edits_of(request, logits[0]) for request in requests]
        if any(edits):
            logits, edited = _edit_rows(logits, requests, edits)
            for row, (token_id, score) in edited.items():
                token_ids[row] = token_id
                if not math.isfinite(score):
                    reason = explain_nothing_left(requests[row])
                    errors.setdefault(requests[row].request_id, reason)
        drawn = [
            row
            for row, request in enumerate(requests)
            if not request.sampling.is_greedy and request.request_id not in errors
        ]
        for row, token_id in zip(drawn, self._draw(logits, requests, drawn), strict=True):
            token_ids[row] = token_id
        return token_ids

    def _draw(
        self, logits: Tensor, requests: Sequence[Request], rows: Sequence[int]
    ) -> Iterator[int]:
        is_cpu = logits.device.type == "cpu"
        most_rows = min(self._most_rows, _MOST_CPU_ROWS) if is_cpu else self._most_rows
        for start in range(0, len(rows), most_rows):
            few = rows[start : start + most_rows]
            yield from draw_tokens(logits[few], [requests[row] for row in few])

    def _edits_of(self, request: Request, like: Tensor) -> tuple[Edit, ...]:
        edits = self._edits.get(request)
        if edits is None:
            edits = self._edits[request] = build_edits(request, self._end_token_ids, like)
        return edits

    def _score(
        self,
        logits: Tensor,
        requests: Sequence[Request],
        token_ids: Sequence[int],
        errors: Mapping[str, str],
    ) -> dict[str, TokenLogprobs]:
        """The logprobs of the tokens of those that asked."""
        logprobs: dict[str, TokenLogprobs] = {}
        for row, request in enumerate(requests):
            num_top = request.sampling.num_logprobs
            if num_top is None or request.request_id in errors:
                continue
            row_logits = logits[row : row + 1]
            [logprobs[request.request_id]] = score_tokens(row_logits, [token_ids[row]], num_top)
        return logprobs

    def _read_prompts(
        self, result: StepResult, batch: Batch, errors: dict[str, str]
    ) -> tuple[dict[str, tuple[TokenLogprobs, ...]], dict[str, tuple[float, ...]]]:
        """Prompt logprobs and embeddings of those chunks that asked."""
        prompt_logprobs: dict[str, tuple[TokenLogprobs, ...]] = {}
        embeddings: dict[str, tuple[float, ...]] = {}
        states = result.prompts
        if states is None:
            return prompt_logprobs, embeddings
        for chunk in batch.chunks:
            request_id = chunk.request.request_id
            hidden = states.hidden.get(request_id)
            if hidden is None or request_id in errors:
                continue
            if chunk.request.pooling is None:
                prompt_logprobs[request_id] = score_prompt(chunk, states, self._most_rows)
                continue
            embedding = self._pooler.pool(chunk, states.normed(hidden))
            if embedding is not None:
                embeddings[request_id] = embedding
        return prompt_logprobs, embeddings


def _edit_rows(
    logits: Tensor, requests: Sequence[Request], edits: Sequence[tuple[Edit, ...]]
) -> tuple[Tensor, dict[int, tuple[int, float]]]:
    """The logits with edits applied, and the best token of each row that has some."""
    logits = logits.clone()
    rows = [row for row, own in enumerate(edits) if own]
    for row in rows:
        for edit in edits[row]:
            edit(logits[row], requests[row])
    best, token_ids = logits[rows].max(-1)
    found = zip(token_ids.tolist(), best.tolist(), strict=True)
    return logits, dict(zip(rows, found, strict=True))
