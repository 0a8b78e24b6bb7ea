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
from forebay_runtime.structured.token_mask import build_mask, has_token, subtract
from forebay_runtime.structured.vocabulary import Vocabulary


class TokenConstraint:
    """A walk through a compiled structure; implements request.Constraint."""

    def __init__(
        self, matcher: LLMatcher, vocabulary: Vocabulary, on_failure: Callable[[], None]
    ) -> None:
        """on_failure is called once, if no token can follow."""
        self._matcher = matcher
        self._end_mask = build_mask(vocabulary.eos_token_ids, vocabulary.vocab_size)
        self._num_bytes = len(self._end_mask)
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
        if not has_token(self.allowed(), token_id):
            if self._error is None:
                self._fail(f"The token {token_id} does not keep to the structure")
            return
        self._mask = None
        self._cpu_seconds_left += MAX_TOKEN_CPU_SECONDS
        if has_token(self._end_mask, token_id):
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
        mask = subtract(mask, self._end_mask)  # a grammar may name them, but an end is an end
        return mask if any(mask) else self._fail(explain_stop("NoExtension"))

    def _fail(self, sentence: str) -> bytes:
        self._error = sentence
        self._on_failure()
        self._mask = bytes(self._num_bytes)
        return self._mask
