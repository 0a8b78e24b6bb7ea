"""What one request was, for the metrics: opened at submission, told each output, closed once.

Used on the asyncio loop by whoever reads the request's outputs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from forebay_runtime.request import Output, Request
from forebay_runtime.server.metrics.families import RequestFamilies


@dataclass
class Choices:
    """The n answers that were asked for one prompt; they count as one request in places."""

    n: int
    num_open: int
    most_tokens: int = 0


class RequestRecord:
    """One engine request from its submission to its end."""

    def __init__(self, families: RequestFamilies, request: Request, choices: Choices) -> None:
        """Note its arrival."""
        self._families = families
        self._request = request
        self._choices = choices
        self._arrived_at = time.monotonic()
        self._scheduled_at: float | None = None
        self._first_token_at: float | None = None
        self._last_token_at = self._arrived_at
        self._num_cached_tokens = 0
        self._is_read = False
        self._is_closed = False
        self.num_tokens = 0

    @property
    def has_begun(self) -> bool:
        """Is there a token of its answer?"""
        return self._first_token_at is not None

    @property
    def age_seconds(self) -> float:
        """Seconds since it arrived."""
        return time.monotonic() - self._arrived_at

    def observe(self, output: Output, num_tokens: int | None = None) -> None:
        """Count what a step gave it; num_tokens: of its tokens, the answer's; all by default."""
        if output.scheduled_at is not None and self._scheduled_at is None:
            self._scheduled_at = output.scheduled_at
        if output.num_cached_tokens is not None:
            self._num_cached_tokens = output.num_cached_tokens
        if output.token_ids or output.finish_reason in ("stop", "length"):
            self._count_prompt()
        if num_tokens is None:
            num_tokens = len(output.token_ids)
        if num_tokens:
            self._count_tokens(num_tokens)

    def close(self, reason: str) -> None:
        """Count its end; reason is one of FINISH_REASONS, or "timeout", which is an abort too."""
        if self._is_closed:
            return
        self._is_closed = True
        families = self._families
        if reason == "timeout":
            families.timeouts["answering" if self.has_begun else "waiting"].inc()
            reason = "abort"
        families.finished[reason].inc()
        families.request_prompt_tokens.observe(len(self._request.prompt_token_ids))
        families.request_generation_tokens.observe(self.num_tokens)
        if self._request.sampling.max_tokens and self._request.pooling is None:
            families.params_max_tokens.observe(self._request.sampling.max_tokens)
        self._count_times(time.monotonic())
        self._close_choice()

    def _count_prompt(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        num_tokens = len(self._request.prompt_token_ids)
        self._families.prompt_tokens.inc(num_tokens)
        self._families.cached_prompt_tokens.inc(self._num_cached_tokens)
        self._families.computed_prompt_tokens.observe(num_tokens - self._num_cached_tokens)

    def _count_tokens(self, num_tokens: int) -> None:
        now = time.monotonic()
        if self._first_token_at is None:
            self._first_token_at = now
            self._families.first_token.observe(now - self._arrived_at)
        else:
            self._families.next_token.observe(now - self._last_token_at)
        self._families.generation_tokens.inc(num_tokens)
        self.num_tokens += num_tokens
        self._last_token_at = now

    def _count_times(self, now: float) -> None:
        """The seconds of each part of its life that it reached."""
        families = self._families
        families.whole.observe(now - self._arrived_at)
        begun_at = self._first_token_at
        scheduled_at = self._scheduled_at or (begun_at and self._arrived_at)
        families.queue.observe(max(0.0, (scheduled_at or now) - self._arrived_at))
        if scheduled_at is None or begun_at is None:
            return
        families.prefill.observe(max(0.0, begun_at - scheduled_at))
        families.decode.observe(self._last_token_at - begun_at)
        families.inference.observe(max(0.0, self._last_token_at - scheduled_at))
        if self.num_tokens > 1:
            families.per_token.observe((self._last_token_at - begun_at) / (self.num_tokens - 1))

    def _close_choice(self) -> None:
        choices = self._choices
        choices.num_open -= 1
        choices.most_tokens = max(choices.most_tokens, self.num_tokens)
        if choices.num_open == 0:
            self._families.params_n.observe(choices.n)
            self._families.most_generation_tokens.observe(choices.most_tokens)
