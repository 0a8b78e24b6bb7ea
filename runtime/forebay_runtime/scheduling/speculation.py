"""Speculative decoding as the scheduler sees it: who proposes, how much, and what came of it.

All decisions on who may are here, and none is made twice. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from forebay_runtime.request import Request, Speculated
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits
from forebay_runtime.speculative.worth import KeptShare, StepCost, num_worth

Grow = Callable[[Request, int], int]
"""Gives a running request blocks for as many of its next tokens as fit; returns how many."""


class Proposer(Protocol):
    """Guesses what comes next."""

    def num_ready(self, request: Request, most: int) -> int:
        """How many tokens, up to most, could be proposed now."""

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[tuple[int, ...]]:
        """At most so many tokens for each request, which has blocks for them."""

    @property
    def round_seconds(self) -> float:
        """What one token more costs for all requests together."""


@dataclass(frozen=True)
class SpeculationRules:
    """How much is proposed, and for whom.

    num_tokens: for one request at a time. counts_on_host: can penalties go by counts that include
    what is only proposed? adapts: is less proposed where it is not worth its work?
    """

    num_tokens: int
    counts_on_host: bool = True
    adapts: bool = True


class Speculation:
    """A proposer, and for whom and how far it is asked."""

    def __init__(self, proposer: Proposer, rules: SpeculationRules, limits: Limits) -> None:
        """limits: the scheduler's."""
        self.proposer = proposer
        self.rules = rules
        self._limits = limits
        self._cost = StepCost()
        self._shares: WeakKeyDictionary[Request, KeptShare] = WeakKeyDictionary()
        self._num_drafts = self._num_proposed = 0
        self._num_kept_at = [0] * rules.num_tokens

    @property
    def counts(self) -> Speculated:
        """What was proposed and kept since the start."""
        return Speculated(self._num_drafts, self._num_proposed, tuple(self._num_kept_at))

    def extend(self, chunks: Sequence[Chunk], num_tokens: int, grow: Grow) -> list[Chunk]:
        """Chunks with what is proposed after those that decode, num_tokens in all at most.

        Only what is left of a step is used: nobody waits, stops or is read more slowly for a guess.
        """
        wanted = self._choose(chunks, min(num_tokens, self._limits.max_num_proposed_tokens))
        for index, number in list(wanted.items()):
            wanted[index] = grow(chunks[index].request, 1 + number) - 1
        asked = {index: number for index, number in wanted.items() if number > 0}
        extended = list(chunks)
        if asked:
            proposals = self.proposer.propose(
                [(chunks[index].request, number) for index, number in asked.items()]
            )
            for index, proposed in zip(asked, proposals, strict=True):
                num_tokens = 1 + len(proposed)
                extended[index] = chunks[index]._replace(num_tokens=num_tokens, proposed=proposed)
        return extended

    def _choose(self, chunks: Sequence[Chunk], num_tokens: int) -> dict[int, int]:
        """How many tokens to ask for, by the places of the chunks that get some."""
        decodes = [place for place, chunk in enumerate(chunks) if self._may_propose(chunk)]
        price = 0.0
        if self.rules.adapts and decodes:
            seconds = self.proposer.round_seconds
            price = self._cost.price(len(chunks), len(decodes), seconds)
        wanted: dict[int, int] = {}
        for place in decodes:
            request = chunks[place].request
            most = min(self.rules.num_tokens, num_tokens, self._num_useful(request))
            number = self._num_worth(request, price, most)
            if number > 0:
                number = self.proposer.num_ready(request, number)
            if number > 0:
                wanted[place] = number
                num_tokens -= number
        return wanted

    def _num_worth(self, request: Request, price: float, most: int) -> int:
        if not self.rules.adapts:
            return most
        share = self._shares.setdefault(request, KeptShare())
        number = num_worth(share.chance, price, most)
        if not number:
            share.idle()
        return number

    def _may_propose(self, chunk: Chunk) -> bool:
        """May the tokens after a chunk's be guessed? They could not be scored, constrained or
        counted as they are sampled one after another."""
        request = chunk.request
        sampling = request.sampling
        is_penalised = (
            sampling.repetition_penalty != 1
            or sampling.presence_penalty != 0
            or sampling.frequency_penalty != 0
        )
        return (
            chunk.num_tokens == 1
            and chunk.catches_up
            and chunk.carried_row is None
            and request.constraint is None
            and sampling.num_logprobs is None
            and not (is_penalised and not self.rules.counts_on_host)
        )

    def _num_useful(self, request: Request) -> int:
        """Tokens that it could still have after the next one."""
        most = min(request.num_wanted_tokens, self._limits.max_model_len)
        return max(0, most - request.num_tokens - 1)

    def note_step(self, batch: Batch, token_ids: Sequence[int], seconds: float) -> None:
        """Learn from a step: what it took, and how much of what was proposed was kept."""
        if all(chunk.num_tokens == 1 + len(chunk.proposed) for chunk in batch.chunks):
            if batch.chunks:
                self._cost.note(batch.num_tokens, seconds)
        if not batch.has_proposed:
            return
        for chunk, kept in zip(batch.chunks, batch.kept_tokens(token_ids), strict=True):
            if chunk.proposed:
                self._note(chunk.request, len(chunk.proposed), len(kept) - 1)

    def _note(self, request: Request, num_proposed: int, num_kept: int) -> None:
        self._shares.setdefault(request, KeptShare()).note(num_kept, num_proposed)
        self._num_drafts += 1
        self._num_proposed += num_proposed
        for place in range(num_kept):
            self._num_kept_at[place] += 1
