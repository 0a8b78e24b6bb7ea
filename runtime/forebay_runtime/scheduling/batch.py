"""One step's work: which tokens of which requests are computed together.

Made by the scheduler, read by runner and sampler. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from forebay_runtime.request import Request
from forebay_runtime.speculative.acceptance import accept


@dataclass(frozen=True)
class Limits:
    """How much a step and a request may hold; max_num_seqs <= max_num_batched_tokens.

    max_num_proposed_tokens: of a step, over all requests; 0 where nothing is proposed.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    max_num_proposed_tokens: int = 0

    @property
    def max_num_sampled(self) -> int:
        """The most rows of a step after which a token is sampled."""
        most = self.max_num_seqs + self.max_num_proposed_tokens
        return min(most, self.max_num_batched_tokens)


class Chunk(NamedTuple):
    """The tokens [start, start + num_tokens) of one request, to be computed in one step.

    catches_up: they are its last and it wants more, so a token is sampled after them.
    carried_row: where the last one's id is pending, its row among the samples of the step before.
    proposed: the ids of the last of them, where these are guesses at what comes next: the request
    does not have them yet, and a token is sampled after the one before them and after each.
    """

    request: Request
    start: int
    num_tokens: int
    catches_up: bool
    carried_row: int | None = None
    proposed: tuple[int, ...] = ()

    @classmethod
    def of(cls, request: Request, start: int, num_tokens: int) -> Chunk:
        """A request's tokens from start on."""
        is_last = start + num_tokens == request.num_coming_tokens
        carried_row = request.pending_row if is_last and request.num_pending_tokens else None
        return cls(request, start, num_tokens, is_last and request.samples, carried_row)

    @property
    def end(self) -> int:
        """One past the last token."""
        return self.start + self.num_tokens


@dataclass(frozen=True)
class Batch:
    """One step's work: chunks of one token first and by length, so that decodes lie together.

    num_tokens_allowed: as many as the step might have had.
    """

    chunks: tuple[Chunk, ...]
    num_tokens_allowed: int = 0

    @cached_property
    def num_tokens(self) -> int:
        """Tokens over all chunks."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    @cached_property
    def has_proposed(self) -> bool:
        """Does any chunk have proposed tokens?"""
        return any([chunk.proposed for chunk in self.chunks])

    @cached_property
    def sampled(self) -> tuple[Request, ...]:
        """Whose each sampled row is, in the chunks' order: a request's, and again for each token
        that is proposed for it."""
        if not self.has_proposed:
            return tuple([chunk.request for chunk in self.chunks if chunk.catches_up])
        return tuple(chunk.request for chunk, _ in self._rows())

    @cached_property
    def assumed(self) -> tuple[tuple[int, ...], ...]:
        """What each sampled row takes for granted; empty where nothing is proposed at all."""
        if not self.has_proposed:
            return ()
        return tuple(chunk.proposed[:number] for chunk, number in self._rows())

    def _rows(self) -> Iterator[tuple[Chunk, int]]:
        """Each sampled row's chunk, and how many of its proposed tokens it takes for granted."""
        for chunk in self.chunks:
            if chunk.catches_up:
                for number in range(1 + len(chunk.proposed)):
                    yield chunk, number

    def kept_tokens(self, token_ids: Sequence[int]) -> list[tuple[int, ...]]:
        """For each chunk the tokens that were sampled for it and count, perhaps none.

        token_ids: of all sampled rows.
        """
        if not self.has_proposed:
            rows = iter(token_ids)
            return [(next(rows),) if chunk.catches_up else () for chunk in self.chunks]
        kept: list[tuple[int, ...]] = []
        row = 0
        for chunk in self.chunks:
            end = row + 1 + len(chunk.proposed) if chunk.catches_up else row
            kept.append(accept(chunk.proposed, token_ids[row:end]))
            row = end
        return kept

    def reached_rows(self, token_ids: Sequence[int]) -> list[bool]:
        """Which sampled rows count: those that took for granted what was sampled before them."""
        if not self.has_proposed:
            return [True] * len(self.sampled)
        kept = zip(self.chunks, self.kept_tokens(token_ids), strict=True)
        numbers = {id(chunk): len(token_ids) for chunk, token_ids in kept}
        return [number < numbers[id(chunk)] for chunk, number in self._rows()]


def share_tokens(missing: Sequence[int], num_tokens: int) -> list[int]:
    """Share a step's tokens among requests that miss so many each, the most urgent first.

    Each gets one. Half of the rest goes to the most urgent, so that no long prompt starves; what
    is left goes to whoever misses least, so that no short prompt waits for a long one. What is
    left by all is nobody's: the sum is min(num_tokens, sum(missing)).
    missing: at least 1 each; num_tokens: at least as many as there are requests.
    """
    if sum(missing) <= num_tokens:
        return list(missing)
    shares = [1] * len(missing)
    left = num_tokens - len(missing)
    for_urgent = left // 2
    for index, wanted in enumerate(missing):
        given = min(wanted - 1, for_urgent)
        shares[index] += given
        for_urgent -= given
        left -= given
    for index in sorted(range(len(missing)), key=lambda index: missing[index] - shares[index]):
        given = min(missing[index] - shares[index], left)
        shares[index] += given
        left -= given
    return shares
