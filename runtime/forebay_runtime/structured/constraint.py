"""One request's constraint: which tokens may come next. Read by the sampler, told by the scheduler.

The state moves only by accept, so a preempted request keeps it. Used by the engine's thread alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from llguidance import LLMatcher

from forebay_runtime.structured.explain import SLOW, explain_stop
from forebay_runtime.structured.limits import (
    MAX_STEP_CPU_SECONDS,
    MAX_TOKEN_CPU_SECONDS,
    MAX_WALK_CPU_SECONDS,
)
from forebay_runtime.structured.vocabulary import Vocabulary


class TokenConstraint:
    """A walk through a compiled structure; implements request.Constraint."""

    def __init__(
        self, matcher: LLMatcher, vocabulary: Vocabulary, on_failure: Callable[[], None]
    ) -> None:
        """on_failure is called once, if no token can follow."""
        self._matcher = matcher
        self._num_bytes = -(-vocabulary.vocab_size // 8)
        self._ends = vocabulary.eos_token_ids
        self._end_mask = _mask_of(self._ends, self._num_bytes)
        self._on_failure = on_failure
        self._mask: bytes | None = None
        self._has_ended = False
        self._cpu_seconds_left = MAX_WALK_CPU_SECONDS
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """Why no token can follow, in a sentence for the client."""
        return self._error

    @property
    def is_complete(self) -> bool:
        """Can nothing follow but the end?"""
        if self._error is not None:
            return False
        if self._has_ended or self._matcher.is_stopped():
            return True
        return self._matcher.is_accepting() and self.allowed() == self._end_mask

    def allowed(self) -> bytes:
        """A bit for each token id, lowest first: ceil(vocab_size / 8) bytes."""
        if self._mask is None:
            self._mask = self._compute()
        return self._mask

    def accept(self, token_id: int) -> None:
        """Take a sampled token; one that is not allowed is an error, and so is all after it."""
        if self._error is not None or self._has_ended:
            return
        if not _has_bit(self.allowed(), token_id):
            if self._error is None:
                self._fail(f"The token {token_id} does not keep to the structure")
            return
        self._mask = None
        self._cpu_seconds_left += MAX_TOKEN_CPU_SECONDS
        if token_id in self._ends:
            self._has_ended = True
        elif not self._matcher.consume_token(token_id):
            self._fail(explain_stop(self._matcher.stop_reason(), self._matcher.get_error()))

    def _compute(self) -> bytes:
        if self._has_ended or self._matcher.is_stopped():
            return self._end_mask
        started = time.thread_time()
        mask = self._matcher.compute_bitmask()[: self._num_bytes]
        spent = time.thread_time() - started
        self._cpu_seconds_left -= spent
        if self._matcher.is_error():
            return self._fail(explain_stop(self._matcher.stop_reason(), self._matcher.get_error()))
        if spent > MAX_STEP_CPU_SECONDS or self._cpu_seconds_left < 0:
            return self._fail(SLOW)
        mask = mask.ljust(self._num_bytes, b"\0")
        if self._matcher.is_accepting():
            return mask
        mask = _without(mask, self._ends)  # a grammar may name them, but an end is an end
        return mask if any(mask) else self._fail(explain_stop("NoExtension"))

    def _fail(self, sentence: str) -> bytes:
        self._error = sentence
        self._on_failure()
        self._mask = bytes(self._num_bytes)
        return self._mask


def _has_bit(mask: bytes, token_id: int) -> bool:
    return 0 <= token_id < len(mask) * 8 and bool(mask[token_id // 8] >> token_id % 8 & 1)


def _mask_of(token_ids: frozenset[int], num_bytes: int) -> bytes:
    mask = bytearray(num_bytes)
    for token_id in token_ids:
        mask[token_id // 8] |= 1 << token_id % 8
    return bytes(mask)


def _without(mask: bytes, token_ids: frozenset[int]) -> bytes:
    if not any(_has_bit(mask, id_) for id_ in token_ids):
        return mask
    kept = bytearray(mask)
    for token_id in token_ids:
        kept[token_id // 8] &= ~(1 << token_id % 8)
    return bytes(kept)
