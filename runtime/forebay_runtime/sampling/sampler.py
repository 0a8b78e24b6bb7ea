"""Leads one step's logits through to tokens, logprobs and embeddings.

No row's arithmetic looks at another row, and a request that asks for nothing special pays for
nothing: greedy is one argmax. State that a request needs from step to step lives here, dies with
the request, and is not touched by preemption.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from forebay_kernels.choice import uses_triton
from forebay_runtime.request import Request
from forebay_runtime.sampling.pooling import Pooler
from forebay_runtime.sampling.portable_choice import PortableChoice
from forebay_runtime.sampling.samples import PromptReadings, Samples
from forebay_runtime.sampling.scores import Ranking, rank_prompt, rank_tokens
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.step_result import StepResult


class Choice(Protocol):
    """One of the two forms, on a CPU and on a GPU, that choose a step's tokens."""

    def choose(
        self, logits: Tensor, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]] = ()
    ) -> Tensor:
        """Each row's token. Shapes: logits [R, V]; out [2, R] int64: tokens, then outcomes.

        assumed: what each row takes for granted after its request's tokens; empty for nothing.
        """


class Sampler:
    """Picks tokens, and tells what else was asked of a step."""

    def __init__(
        self, end_token_ids: frozenset[int] = frozenset(), *, is_batch_invariant: bool = False
    ) -> None:
        """end_token_ids: what min_tokens keeps away besides a request's own stop tokens."""
        self._end_token_ids = end_token_ids
        self._most_rows = 1 if is_batch_invariant else 2**31
        """Rows that one call may take; one alone is computed alike in every batch."""
        self._choice: Choice | None = None
        self._pooler = Pooler()

    def sample(self, result: StepResult, batch: Batch) -> Samples:
        """A token for each row of batch.sampled, and what else their requests asked for.

        On a GPU nothing is waited for.
        """
        requests, logits = batch.sampled, result.logits
        with torch.inference_mode():
            drawn = torch.empty(2, 0, dtype=torch.int64, device=logits.device)
            if requests:
                drawn = self._choice_for(logits).choose(logits, requests, batch.assumed)
            rankings = self._rank(logits, requests, drawn[0])
            return Samples(batch, drawn, rankings, self._read_prompts(result, batch), result)

    def choose(
        self, logits: Tensor, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]]
    ) -> Tensor:
        """A token for each row, by its request's wishes after what it takes for granted.

        Shapes: logits [R, V] float32; out [2, R] int64: tokens, outcomes.
        """
        with torch.inference_mode():
            return self._choice_for(logits).choose(logits, requests, assumed)

    def _choice_for(self, logits: Tensor) -> Choice:
        """The form for the model's device, made at its first step."""
        if self._choice is None:
            if uses_triton(logits.device):
                # Its kernels are Triton's, which a host without a GPU need not have.
                from forebay_runtime.sampling.device_choice import DeviceChoice

                self._choice = DeviceChoice(self._end_token_ids, logits.shape[1], logits.device)
            else:
                self._choice = PortableChoice(self._end_token_ids, self._most_rows)
        return self._choice

    def _rank(
        self, logits: Tensor, requests: Sequence[Request], token_ids: Tensor
    ) -> dict[str, Ranking]:
        """The tokens of those that asked for logprobs, each ranked by itself."""
        return {
            request.request_id: rank_tokens(
                logits[row : row + 1], token_ids[row : row + 1], request.sampling.num_logprobs
            )
            for row, request in enumerate(requests)
            if request.sampling.num_logprobs is not None
        }

    def _read_prompts(self, result: StepResult, batch: Batch) -> PromptReadings:
        """Prompt logprobs and embeddings of those chunks that asked."""
        readings = PromptReadings({}, {})
        states = result.prompts
        if states is None:
            return readings
        for chunk in batch.chunks:
            request_id = chunk.request.request_id
            hidden = states.hidden.get(request_id)
            if hidden is None:
                continue
            if chunk.request.pooling is None:
                readings.rankings[request_id] = rank_prompt(chunk, states, self._most_rows)
                continue
            embedding = self._pooler.pool(chunk, states.normed(hidden))
            if embedding is not None:
                readings.embeddings[request_id] = embedding
        return readings
