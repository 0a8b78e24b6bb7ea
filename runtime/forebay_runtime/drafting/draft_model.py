"""Guesses by a smaller model of the same vocabulary, over a KV cache in step with the served one's.

Its cache has a block for each of the served model's, under the same id: so a request's block table
serves both, and whoever takes, shares or gives back a block does so for both. What it has in them
is its own affair: it computes what it lacks of a request when it is asked about it, whatever the
served model found in its prefix cache, computed without it or threw away. What it wrote for guesses
that were not kept is written again before it is read (Allocator.note_computed forgets it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forebay_runtime.prefix import Prefix
from forebay_runtime.request import Request
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.runner.step_inputs import StepInputs, describe_step
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Chunk

_NEWEST_WEIGHT = 0.1
"""Of the last round's seconds, in what a round is expected to take."""


@dataclass
class _Draft:
    """A request that is being guessed for: most tokens at most, those guessed so far."""

    request: Request
    most: int
    guessed: list[int]


class DraftModel:
    """A runner of its own, asked once for all requests of a step."""

    def __init__(
        self,
        runner: ModelRunner,
        sampler: Sampler,
        num_positions: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """num_positions: that the draft model knows; longer texts get no guesses."""
        self.runner = runner
        self.sampler = sampler
        self.round_seconds = 0.0
        """What one token more costs for all requests together."""
        self._num_positions = num_positions
        self._clock = clock
        self._contents: dict[int, Prefix] = {}
        """Of blocks that it has filled, with what."""

    def num_ready(self, request: Request, most: int) -> int:
        """How many tokens, up to most, could be proposed now."""
        return max(0, min(most, self._num_positions - request.num_tokens))

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[tuple[int, ...]]:
        """At most so many tokens for each request; none for one that it has not caught up with."""
        drafts = [_Draft(request, most, []) for request, most in wanted]
        inputs, going = self._catch_up(drafts)
        while going:
            start = self._clock()
            rows = [row for row, draft in enumerate(going) if len(draft.guessed) < draft.most]
            going = [going[row] for row in rows]
            if not going:
                break
            inputs = _next_round(inputs, rows, going, self.runner.block_size)
            self._guess(inputs, going)
            self._note_round(self._clock() - start)
        for draft in drafts:
            if draft.guessed:
                request = draft.request
                request.num_drafted_tokens = request.num_tokens + len(draft.guessed) - 1
        return [tuple(draft.guessed) for draft in drafts]

    def _note_round(self, seconds: float) -> None:
        if not self.round_seconds:
            self.round_seconds = seconds
        self.round_seconds += _NEWEST_WEIGHT * (seconds - self.round_seconds)

    def _catch_up(self, drafts: Sequence[_Draft]) -> tuple[StepInputs, list[_Draft]]:
        """Compute what it lacks, as far as a step goes; the inputs of those that have a guess."""
        num_left = self.runner.limits.max_num_batched_tokens
        chunks: list[Chunk] = []
        going: list[_Draft] = []
        for number, draft in enumerate(drafts):
            request = draft.request
            start = self._num_held(request)
            # Each gets a token at least, as no more run than a step has tokens.
            num_later = len(drafts) - number - 1
            num_tokens = min(request.num_tokens - start, num_left - num_later)
            num_left -= num_tokens
            is_last = start + num_tokens == request.num_tokens
            chunks.append(Chunk(request, start, num_tokens, is_last))
            if is_last:
                going.append(draft)
        inputs = describe_step(Batch(tuple(chunks)), self.runner.block_size)
        self._guess(inputs, going)
        for chunk in chunks:
            self._note_held(chunk)
        rows = [row for row, chunk in enumerate(chunks) if chunk.catches_up]
        return _only(inputs, rows), going

    def _guess(self, inputs: StepInputs, going: Sequence[_Draft]) -> None:
        """Run the model, and draw with the chance that belongs to each token's place."""
        logits = self.runner.compute(inputs).logits
        if not going:
            return
        requests = [draft.request for draft in going]
        assumed = [tuple(draft.guessed) for draft in going]
        token_ids = self.sampler.choose(logits, requests, assumed)
        for draft, token_id in zip(going, token_ids, strict=True):
            draft.guessed.append(token_id)

    def _num_held(self, request: Request) -> int:
        """The first tokens of which it has keys and values, short of the last known one."""
        if not request.num_drafted_tokens:
            size = self.runner.block_size
            for block_id, prefix in zip(request.block_ids, request.prefixes, strict=False):
                if self._contents.get(block_id) is not prefix:
                    break
                request.num_drafted_tokens += size
        return min(request.num_drafted_tokens, request.num_tokens - 1)

    def _note_held(self, chunk: Chunk) -> None:
        """Note what was computed; of full blocks also with what, as others may come by them."""
        request, size = chunk.request, self.runner.block_size
        request.num_drafted_tokens = chunk.end
        # A block is given its prefix when the served model has computed it: a step after this.
        first = max(0, chunk.start // size - 1)
        last = min(chunk.end // size, len(request.prefixes))
        for index in range(first, last):
            self._contents[request.block_ids[index]] = request.prefixes[index]


def _only(inputs: StepInputs, rows: Sequence[int]) -> StepInputs:
    """The block tables of some sequences; of what else there is the next round makes its own."""
    return replace(inputs, block_tables=inputs.block_tables[rows])


def _next_round(
    before: StepInputs, rows: Sequence[int], going: Sequence[_Draft], block_size: int
) -> StepInputs:
    """A decode of each one's last guess. rows: theirs among those of the round before."""
    block_tables = before.block_tables[rows]
    positions = np.array(
        [draft.request.num_tokens + len(draft.guessed) - 1 for draft in going], np.int64
    )
    blocks = positions // block_size
    slots = block_tables[np.arange(len(going)), blocks] * block_size + positions % block_size
    token_ids = [draft.guessed[-1] for draft in going]
    tokens = np.array([token_ids, positions, slots, np.full(len(going), -1)], np.int64)
    return StepInputs(
        tokens,
        (1,) * len(going),
        tuple((positions + 1).tolist()),
        block_tables,
        np.arange(len(going), dtype=np.int64),
    )
