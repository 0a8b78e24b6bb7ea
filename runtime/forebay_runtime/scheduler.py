"""Which tokens the next step computes, and what a step's tokens mean for their requests.

There are no prefill and decode phases: every request catches up from num_computed_tokens to
num_tokens, within a budget of tokens a step. The engine calls schedule and settle in turn; add and
abort come between them. Imports no torch.

Order is by arrival, always: running + waiting is the order in which requests came. Whoever must
make room is the newest, so the oldest never stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from forebay_runtime.blocks import BlockPool, IntegrityError
from forebay_runtime.request import FinishReason, Load, Output, Request


@dataclass(frozen=True)
class Limits:
    """How much a step and a request may hold; max_num_seqs <= max_num_batched_tokens."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


@dataclass(frozen=True)
class Chunk:
    """The tokens [start, start + num_tokens) of one request, to be computed in one step.

    catches_up: they are its last, so a token is sampled after them.
    """

    request: Request
    start: int
    num_tokens: int
    catches_up: bool

    @classmethod
    def of(cls, request: Request, start: int, num_tokens: int) -> Chunk:
        """A request's tokens from start on."""
        return cls(request, start, num_tokens, start + num_tokens == request.num_tokens)

    @property
    def end(self) -> int:
        """One past the last token."""
        return self.start + self.num_tokens


@dataclass(frozen=True)
class Batch:
    """One step's work: chunks of one token first and by length, so that decodes lie together."""

    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens over all chunks."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def sampled(self) -> tuple[Request, ...]:
        """The requests that get a token from this step, in the chunks' order."""
        return tuple(chunk.request for chunk in self.chunks if chunk.catches_up)


class Scheduler:
    """Continuous batching over one block pool."""

    def __init__(self, pool: BlockPool, limits: Limits, eos_token_ids: frozenset[int]) -> None:
        self.pool = pool
        self.limits = limits
        self.eos_token_ids = eos_token_ids
        self._running: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._ended: list[Output] = []

    @property
    def has_work(self) -> bool:
        """Is there a request to move or an end to report?"""
        return bool(self._running or self._waiting or self._ended)

    @property
    def running(self) -> tuple[Request, ...]:
        """Requests that hold blocks, in order of arrival."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Requests that hold none, in order of arrival; all came after those running."""
        return tuple(self._waiting)

    def knows(self, request_id: str) -> bool:
        """Is there a request of this id?"""
        return any(r.request_id == request_id for r in (*self._running, *self._waiting))

    def add(self, request: Request) -> None:
        """Queue a request behind all others."""
        self._waiting.append(request)

    def abort(self, request_id: str) -> None:
        """End a request and free its blocks; an id that is not known is no error."""
        for queue in (self._running, self._waiting):
            for request in queue:
                if request.request_id == request_id:
                    queue.remove(request)
                    self._end(request, "abort")
                    return

    def schedule(self) -> Batch:
        """Pick the next step's tokens: the running first, then as many waiting as fit."""
        chunks = self._schedule_running()
        num_tokens_left = self.limits.max_num_batched_tokens - sum(c.num_tokens for c in chunks)
        chunks += self._admit(num_tokens_left)
        return Batch(tuple(sorted(chunks, key=lambda chunk: (chunk.num_tokens > 1, chunk.end))))

    def settle(self, batch: Batch, token_ids: Sequence[int]) -> list[Output]:
        """Record what the step computed; token_ids are in the order of batch.sampled."""
        outputs, self._ended = self._ended, []
        sampled = batch.sampled
        for chunk in batch.chunks:
            chunk.request.num_computed_tokens = chunk.end
        for request, token_id in zip(sampled, token_ids, strict=True):
            request.output_token_ids.append(token_id)
            reason = self._finish_reason(request, token_id)
            outputs.append(Output(request.request_id, (token_id,), reason))
            if reason is not None:
                self._running.remove(request)
                self._release(request)
        return outputs

    def load_now(self) -> Load:
        """How busy the scheduler is."""
        return Load(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            kv_cache_usage=self.pool.usage,
            free_kv_tokens=self.pool.num_free_blocks * self.pool.block_size,
        )

    def check_integrity(self) -> None:
        """Check that every block is free or held by one running request, and tokens add up.

        Raises: IntegrityError.
        """
        self.pool.check_integrity(request.block_ids for request in self._running)
        for request in (*self._running, *self._waiting):
            num_held = len(request.block_ids) * self.pool.block_size
            if not 0 <= request.num_computed_tokens <= min(request.num_tokens, num_held):
                raise IntegrityError(
                    f"request {request.request_id} has {request.num_computed_tokens} tokens "
                    f"computed of {request.num_tokens}, in blocks for {num_held}"
                )

    def _schedule_running(self) -> list[Chunk]:
        """Give every running request its next tokens, oldest first, and one at least to each."""
        chunks: list[Chunk] = []
        num_tokens_left = self.limits.max_num_batched_tokens
        while len(chunks) < len(self._running):
            request = self._running[len(chunks)]
            num_behind = len(self._running) - len(chunks) - 1
            num_missing = request.num_tokens - request.num_computed_tokens
            num_tokens = min(num_missing, num_tokens_left - num_behind)
            if not self._grow(request, request.num_computed_tokens + num_tokens):
                break
            chunks.append(Chunk.of(request, request.num_computed_tokens, num_tokens))
            num_tokens_left -= num_tokens
        return chunks

    def _grow(self, request: Request, num_tokens: int) -> bool:
        """Give a running request blocks for num_tokens; False if it was the one to make room."""
        num_missing = self.pool.num_blocks_for(num_tokens) - len(request.block_ids)
        while num_missing > self.pool.num_free_blocks:
            newest = self._running.pop()
            self._release(newest)
            if newest is request:
                # Alone and still short: waiting would not help. _admit ends it with an error.
                self._waiting.appendleft(request)
                return False
            self._waiting.appendleft(newest)
        request.block_ids += self.pool.allocate(max(0, num_missing))
        return True

    def _admit(self, num_tokens_left: int) -> list[Chunk]:
        """Start waiting requests in order, each with blocks for its whole prompt."""
        chunks: list[Chunk] = []
        while self._waiting and num_tokens_left and len(self._running) < self.limits.max_num_seqs:
            request = self._waiting[0]
            num_blocks = self.pool.num_blocks_for(self._num_tokens_to_reserve(request))
            if num_blocks > self.pool.num_blocks:
                self._waiting.popleft()
                self._end(request, "error", self._outgrown(request))
                continue
            # A block for each running one stays free, or the newcomer would be preempted at once.
            if num_blocks + len(self._running) > self.pool.num_free_blocks and self._running:
                break
            self._running.append(self._waiting.popleft())
            request.block_ids += self.pool.allocate(num_blocks)
            num_tokens = min(request.num_tokens, num_tokens_left)
            chunks.append(Chunk.of(request, 0, num_tokens))
            num_tokens_left -= num_tokens
        return chunks

    def _num_tokens_to_reserve(self, request: Request) -> int:
        """The tokens known now and, unless it is the last and so never computed, the next one."""
        num_most = min(
            len(request.prompt_token_ids) + request.sampling.max_tokens, self.limits.max_model_len
        )
        return min(request.num_tokens + 1, num_most - 1)

    def _outgrown(self, request: Request) -> str:
        return (
            f"The request has {request.num_tokens} tokens and the whole KV cache holds "
            f"{self.pool.num_blocks * self.pool.block_size}; shorten the prompt, lower max_tokens, "
            "or raise --kv-cache-memory-bytes"
        )

    def _finish_reason(self, request: Request, token_id: int) -> FinishReason | None:
        sampling = request.sampling
        if token_id in sampling.stop_token_ids:
            return "stop"
        if token_id in self.eos_token_ids and not sampling.ignore_eos:
            return "stop"
        if len(request.output_token_ids) >= sampling.max_tokens:
            return "length"
        if request.num_tokens >= self.limits.max_model_len:
            return "length"
        return None

    def _end(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        self._release(request)
        self._ended.append(Output(request.request_id, (), reason, error))

    def _release(self, request: Request) -> None:
        self.pool.release(request.block_ids)
        request.block_ids.clear()
        request.num_computed_tokens = 0
