"""Say no before the queue grows beyond what the server was told to hold.

Asked when a request has been read, so that a full server works no more for it, and right before it
is submitted, on the asyncio loop, so that what is counted cannot change in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from forebay_runtime.server.engine_loop import EngineLoop
from forebay_runtime.server.errors import QueueFull
from forebay_runtime.server.options import ServeOptions

_WEIGHT_OF_LATEST = 0.2


class QueueGate:
    """The limits of one server's queue."""

    def __init__(
        self, options: ServeOptions, loop: EngineLoop, on_rejection: Callable[[str], None]
    ) -> None:
        """Take limits from options and counts from loop; on_rejection hears which limit it was."""
        self._on_rejection = on_rejection
        self._options = options
        self._loop = loop
        self._mean_request_seconds = 1.0

    def check(self, num_requests: int, num_tokens: int) -> None:
        """Let new requests in, all of them or none; num_tokens: in all their prompts.

        Raises: QueueFull with the time after which trying again makes sense.
        """
        limit = self._options.max_num_queued_reqs
        if limit is not None and self._num_waiting_with(num_requests) > limit:
            raise self._full(
                "max_num_queued_reqs",
                f"{self._loop.num_in_flight} requests run or wait, and at most {limit} may wait "
                "(--max-num-queued-reqs)",
            )
        limit = self._options.max_num_queued_tokens
        num_unread = self._loop.num_unread_tokens
        # With none ahead of it any prompt is taken: no later time would be better for it.
        if limit is not None and num_unread and num_unread + num_tokens > limit:
            raise self._full(
                "max_num_queued_tokens",
                f"{num_unread} prompt tokens wait to be read, and with this request's {num_tokens} "
                f"there would be more than {limit} (--max-num-queued-tokens)",
            )

    def note_request_seconds(self, seconds: float) -> None:
        """Learn from a finished request how long one takes."""
        self._mean_request_seconds += _WEIGHT_OF_LATEST * (seconds - self._mean_request_seconds)

    def _num_waiting_with(self, num_new: int) -> int:
        """How many would wait if the new ones came in.

        Seats are counted by who came first, so that a burst on an idle engine is no queue; whoever
        the engine could give no KV blocks to waits whatever the seats are.
        """
        beyond_seats = self._loop.num_in_flight + num_new - self._options.max_num_seqs
        behind_others = self._loop.num_waiting_at_step + num_new
        return max(0, beyond_seats, behind_others if self._loop.num_waiting_at_step else 0)

    def _full(self, limit: str, reason: str) -> QueueFull:
        self._on_rejection(limit)
        # A guess: the whole rounds of the batch that are ahead, at the pace of late.
        rounds = (self._loop.num_in_flight + 1) / self._options.max_num_seqs
        return QueueFull(
            f"The queue is full: {reason}; try again later",
            code="rate_limit_exceeded",
            retry_after_seconds=math.ceil(rounds * self._mean_request_seconds),
        )
