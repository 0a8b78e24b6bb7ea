"""How many tokens a step computes, so that a step on a slow device stays short.

Everyone who runs waits for the whole step, and a token costs more the more keys it sees. So a step
is measured in work: for each token the keys that it sees, and what the rest of the model costs in
keys. The scheduler tells what each step took, and the next does as much as fits at that rate.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Chunk, Limits

_TOKEN_KEYS = 1_000
"""A token costs about what so many keys cost. Models differ, and it need not be right: only a step
whose context is much longer than that of the step before is misjudged, and only once."""

_AIMED_SHARE = 0.75
"""Of the time allowed, as no two steps take the same time."""

_LEAST_MORE = 8
"""Tokens beyond one for each: where the weights have to be read at all, so many cost little more
than one. With fewer a model whose every step is slow would read its prompts token by token."""


class Pace:
    """The tokens of the next step: as many as the limits allow, or fewer to keep it short."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most_seconds: float | None = None
        self._seconds_per_work = 0.0

    def keep_under(self, most_seconds: float, full_step_seconds: float) -> None:
        """From now on keep steps under most_seconds; a full step without context took so long."""
        num_tokens = self._limits.max_num_batched_tokens
        num_keys = min(num_tokens, self._limits.max_model_len)
        self._most_seconds = most_seconds
        self._seconds_per_work = full_step_seconds / (num_tokens * (_TOKEN_KEYS + num_keys))

    def num_tokens_for(self, running: Sequence[Request]) -> int:
        """The next step's tokens: one for each that runs, and a few more at least."""
        most = self._limits.max_num_batched_tokens
        if self._most_seconds is None or self._seconds_per_work == 0:
            return most
        work = _AIMED_SHARE * self._most_seconds / self._seconds_per_work
        work -= sum(_TOKEN_KEYS + request.num_launched_tokens for request in running)
        longest = max(
            (r.num_launched_tokens for r in running if r.num_missing_tokens > 1), default=0
        )
        # n tokens after a context of c keys are n * (_TOKEN_KEYS + c + n) of work.
        half = (_TOKEN_KEYS + longest) / 2
        num_more = int(sqrt(half * half + max(0.0, work)) - half)
        return min(most, len(running) + max(_LEAST_MORE, num_more))

    def note_step(self, chunks: Sequence[Chunk], num_tokens_allowed: int, seconds: float) -> None:
        """Learn from a step that read prompts.

        One that was smaller than it might have been says nothing, unless it took too long all the
        same. One that was made small says how fast the device is again, after a moment's trouble.
        What was slow counts at once, what was fast by half: where neighbours take the processors
        at times, a lucky step would make the next one far too large.
        """
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        if self._most_seconds is None or all(_is_decode(chunk) for chunk in chunks):
            return
        if 2 * num_tokens >= num_tokens_allowed or seconds > self._most_seconds:
            work = sum(chunk.num_tokens * (_TOKEN_KEYS + chunk.end) for chunk in chunks)
            before, now = self._seconds_per_work, seconds / work
            self._seconds_per_work = max(now, sqrt(before * now))


def _is_decode(chunk: Chunk) -> bool:
    return chunk.catches_up and chunk.num_tokens == 1 + len(chunk.proposed)
