"""Leads one step's logits through to tokens, logprobs and embeddings.

No row's arithmetic looks at another row, and a request that asks for nothing special pays for
nothing: greedy is one argmax. State that a request needs from step to step lives here, dies with
the request, and is not touched by preemption.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from forebay_kernels.choice import uses_triton
from forebay_kernels.cpu.score_rows import Scores, to_tensor
from forebay_runtime.request import Request
from forebay_runtime.sampling.native_drawing import choose_drawing
from forebay_runtime.sampling.picked import Picked, to_drawn_tensor
from forebay_runtime.sampling.pooling import Pooler
from forebay_runtime.sampling.portable_choice import PortableChoice
from forebay_runtime.sampling.samples import PromptReadings, Samples
from forebay_runtime.sampling.scores import Ranking, rank_prompt
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.step_result import StepResult


class Choice(Protocol):
    """One of the two forms, on a CPU and on a GPU, that choose a step's tokens."""

    def choose(
        self, logits: Any, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]] = ()
    ) -> Tensor | Picked:
        """Each row's token. Shapes: logits [R, V]; out [2, R] int64: tokens, then outcomes.

        assumed: what each row takes for granted after its request's tokens; empty for nothing.
        """

    def rank(self, logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
        """Each row's token ranked, as rank_tokens has it."""


class Sampler:
    """Picks tokens, and tells what else was asked of a step."""

    def __init__(
        self,
        end_token_ids: frozenset[int] = frozenset(),
        *,
        is_batch_invariant: bool = False,
        num_threads: int = 1,
    ) -> None:
        """end_token_ids: what min_tokens keeps away besides a request's own stop tokens.

        num_threads: that share a step's rows on a CPU.
        """
        self._end_token_ids = end_token_ids
        self._num_threads = num_threads
        self._most_rows = 1 if is_batch_invariant else 2**31
        """Rows that one call may take; one alone is computed alike in every batch."""
        self._choice: Choice | None = None
        self._pooler = Pooler()

    def sample(self, result: StepResult, batch: Batch) -> Samples:
        """A token for each row of batch.sampled, and what else their requests asked for.

        On a GPU nothing is waited for.
        """
        requests, logits = batch.sampled, result.logits
        choice = self._choice_for(logits)
        drawn = choice.choose(logits, requests, batch.assumed) if requests else Picked([], [])
        asking = [
            row for row, each in enumerate(requests) if each.sampling.num_logprobs is not None
        ]
        if not asking and result.prompts is None:
            return Samples(batch, drawn, {}, PromptReadings({}, {}), result)
        with torch.inference_mode():
            rankings = self._rank(to_tensor(logits), requests, to_drawn_tensor(drawn), asking)
            return Samples(batch, drawn, rankings, self._read_prompts(result, batch), result)

    def choose(
        self, logits: Scores, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]]
    ) -> list[int]:
        """A token for each row, by its request's wishes after what it takes for granted.

        On a GPU it waits. Shapes: logits [R, V] float32.
        """
        drawn = self._choice_for(logits).choose(logits, requests, assumed)
        return drawn.token_ids if isinstance(drawn, Picked) else drawn[0].tolist()

    def _choice_for(self, scores: Scores) -> Choice:
        """The form for the model's device, made at its first step."""
        if self._choice is None:
            logits = to_tensor(scores)
            if uses_triton(logits.device):
                # Its kernels are Triton's, which a host without a GPU need not have.
                from forebay_runtime.sampling.device_choice import DeviceChoice

                self._choice = DeviceChoice(self._end_token_ids, logits.shape[1], logits.device)
            else:
                drawing = choose_drawing(self._most_rows, self._num_threads)
                self._choice = PortableChoice(self._end_token_ids, drawing)
        return self._choice

    def _rank(
        self,
        logits: Tensor,
        requests: Sequence[Request],
        drawn: Tensor,
        rows: Sequence[int],
    ) -> dict[str, Ranking]:
        """The tokens of rows that asked for logprobs, each ranked by itself."""
        choice = self._choice_for(logits)
        return {
            requests[row].request_id: choice.rank(
                logits[row : row + 1],
                drawn[0, row : row + 1],
                requests[row].sampling.num_logprobs or 0,
            )
            for row in rows
        }

    def _read_prompts(self, result: StepResult, batch: Batch) -> PromptReadings:
        """Prompt logprobs and embeddings of those chunks that asked."""
        readings = PromptReadings({}, {})
        states = result.prompts
        if states is None:
            return readings
        rank = self._choice_for(result.logits).rank
        for chunk in batch.chunks:
            request_id = chunk.request.request_id
            hidden = states.hidden.get(request_id)
            if hidden is None:
                continue
            if chunk.request.pooling is None:
                readings.rankings[request_id] = rank_prompt(chunk, states, rank, self._most_rows)
                continue
            embedding = self._pooler.pool(chunk, states.normed(hidden))
            if embedding is not None:
                readings.embeddings[request_id] = embedding
        return readings
