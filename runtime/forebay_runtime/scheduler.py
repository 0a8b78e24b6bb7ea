"""Which tokens the next step computes, and what a step's tokens mean for their requests.

There are no prefill and decode phases: every request catches up from num_computed_tokens to
num_tokens, within a budget of tokens a step. The engine calls schedule and settle in turn; add and
abort come between them. Imports no torch.

Whoever must make room is the least urgent that runs, so the most urgent never stops. A request that
finds no room is passed by others, but only so often: then all wait until it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from forebay_runtime.allocator import Allocator, Hit
from forebay_runtime.batch import Batch, Chunk, Limits, share_tokens
from forebay_runtime.blocks import BlockPool, IntegrityError
from forebay_runtime.finishing import (
    Ending,
    EndRules,
    add_prompt_logprobs,
    error_of,
    take_token,
    to_output,
)
from forebay_runtime.request import Load, Output, Request
from forebay_runtime.step_result import Sampled
from forebay_runtime.waiting import OrderedRequests, Policy, order_of

__all__ = ["Batch", "Chunk", "Limits", "Rules", "Scheduler"]

_MOST_TIMES_PASSED = 16
"""Requests behind one that finds no room may run before it, as often as that."""

_MOST_LOOKED_AT = 16
"""Requests without room that one step looks at, so that a long queue costs a step little."""


@dataclass(frozen=True)
class Rules:
    """How a scheduler picks.

    long_prompt_tokens: prompts of more tokens are long, and of these max_long_prompts are read at a
    time; None means that none is long. window: the tokens that each token attends to in every
    layer, itself included, two at least; None means all.
    """

    policy: Policy = "fcfs"
    has_prefix_cache: bool = True
    long_prompt_tokens: int | None = None
    max_long_prompts: int = 1
    window: int | None = None


class Scheduler:
    """Continuous batching over one block pool."""

    def __init__(
        self,
        pool: BlockPool,
        limits: Limits,
        eos_token_ids: frozenset[int],
        rules: Rules = Rules(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pool = pool
        self.limits = limits
        self.eos_token_ids = eos_token_ids
        self.rules = rules
        self.max_step_tokens = limits.max_num_batched_tokens
        self._clock = clock
        self._allocator = Allocator(pool, rules.window, rules.has_prefix_cache)
        self._end_rules = EndRules(eos_token_ids, limits.max_model_len)
        self._requests: dict[str, Request] = {}
        self._order = order_of(rules.policy)
        self._running = OrderedRequests(self._order)
        self._waiting = OrderedRequests(self._order)
        self._arrivals = count()
        self._ended: list[Output] = []
        self._num_preemptions = 0
        self._num_prefix_queries = 0
        self._num_prefix_hits = 0
        self._num_step_tokens = 0

    @property
    def has_work(self) -> bool:
        """Is there a request to move or an end to report?"""
        return bool(self._requests or self._ended)

    @property
    def running(self) -> tuple[Request, ...]:
        """Requests that take part in steps, the most urgent first."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Requests that hold no blocks, the most urgent first."""
        return tuple(self._waiting)

    def knows(self, request_id: str) -> bool:
        """Is there a request of this id?"""
        return request_id in self._requests

    def lower_step_tokens(self, max_step_tokens: int) -> None:
        """Compute fewer tokens a step than the limit, but one for each request at least."""
        at_most = self.limits.max_num_batched_tokens
        self.max_step_tokens = max(self.limits.max_num_seqs, min(max_step_tokens, at_most))

    def add(self, request: Request) -> None:
        """Queue a request behind all others that are as urgent."""
        request.arrival_index = next(self._arrivals)
        self._requests[request.request_id] = request
        self._waiting.add(request)

    def abort(self, request_id: str) -> None:
        """End a request and free its blocks; an id that is not known is no error."""
        request = self._requests.get(request_id)
        if request is not None:
            self._ended.append(self._end(request, Ending("abort")))

    def schedule(self) -> Batch:
        """Pick the next step's tokens: some for everyone who runs, newcomers included."""
        self._admit()
        missing = [r.num_tokens - r.num_computed_tokens for r in self._running]
        chunks: list[Chunk] = []
        for num_tokens in share_tokens(missing, self.max_step_tokens):
            # Those behind may have been preempted meanwhile, those before never.
            if len(chunks) == len(self._running):
                break
            request = self._running[len(chunks)]
            num_fitting = self._make_room(request, num_tokens)
            if num_fitting:
                chunks.append(Chunk.of(request, request.num_computed_tokens, num_fitting))
        return Batch(tuple(sorted(chunks, key=lambda chunk: (chunk.num_tokens > 1, chunk.end))))

    def settle(self, batch: Batch, sampled: Sampled) -> list[Output]:
        """Record what a step computed; the outputs of those that got something or ended."""
        outputs, self._ended = self._ended, []
        self._num_step_tokens = batch.num_tokens
        token_ids = iter(sampled.token_ids)
        for chunk in batch.chunks:
            token_id = next(token_ids) if chunk.catches_up else None
            output = self._advance(chunk, token_id, sampled)
            if output is not None:
                outputs.append(output)
        return outputs

    def load_now(self) -> Load:
        """How busy the scheduler is."""
        pool = self.pool
        num_slots = pool.num_held_blocks * pool.block_size
        num_empty = sum(
            len(r.block_ids) * pool.block_size - r.num_computed_tokens for r in self._running
        )
        return Load(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            kv_cache_usage=pool.usage,
            free_kv_tokens=pool.num_free_blocks * pool.block_size,
            num_preemptions=self._num_preemptions,
            num_prefix_queries=self._num_prefix_queries,
            num_prefix_hits=self._num_prefix_hits,
            num_step_tokens=self._num_step_tokens,
            kv_fragmentation=num_empty / num_slots if num_slots else 0.0,
        )

    def check_integrity(self) -> None:
        """Check that blocks, tokens and lines add up.

        Raises: IntegrityError.
        """
        self._allocator.check_integrity(self._running)
        for request in self._waiting:
            if request.block_ids or request.num_computed_tokens:
                raise IntegrityError(f"request {request.request_id} waits and holds blocks")
        if len(self._running) + len(self._waiting) != len(self._requests):
            raise IntegrityError("a request is lost, or in two lines")

    def _admit(self) -> None:
        """Start those who wait and find room, the most urgent first."""
        without_room: list[Request] = []
        for request in tuple(self._waiting):
            if self._has_no_seat_for(request):
                break
            if self._is_too_large(request):
                self._ended.append(self._end(request, Ending("error", self._outgrown(request))))
                continue
            if self._waits_for_long_prompts(request):
                continue
            hit = self._allocator.find_hit(request)
            if self._waits_for_prefix(request, hit):
                continue
            if self._find_room(request, hit):
                self._start(request, hit)
                for other in without_room:
                    other.num_times_passed += 1
                continue
            without_room.append(request)
            is_next = request.num_times_passed >= _MOST_TIMES_PASSED
            if is_next or len(without_room) == _MOST_LOOKED_AT:
                break

    def _has_no_seat_for(self, request: Request) -> bool:
        is_full = len(self._running) >= self.limits.max_num_seqs
        return is_full and not self._may_stop(self._running[-1], request)

    def _may_stop(self, running: Request, urgent: Request) -> bool:
        return self.rules.policy == "priority" and urgent.priority < running.priority

    def _is_too_large(self, request: Request) -> bool:
        return self._num_blocks_at_once(request, num_unseen=0) > self.pool.num_blocks

    def _waits_for_long_prompts(self, request: Request) -> bool:
        """Is its prompt long, with as many long ones being read as may be?"""
        most = self.rules.long_prompt_tokens
        if most is None or request.num_tokens <= most:
            return False
        num_long = sum(
            r.num_tokens - (r.num_cached_tokens or 0) > most
            for r in self._running
            if r.num_computed_tokens < len(r.prompt_token_ids)
        )
        return num_long >= self.rules.max_long_prompts

    def _waits_for_prefix(self, request: Request, hit: Hit) -> bool:
        """Will most of what it lacks soon be there, as someone before it computes that now?"""
        computer = self._allocator.find_computer(request, hit)
        return computer is not None and self._order(computer) < self._order(request)

    def _find_room(self, request: Request, hit: Hit) -> bool:
        """Is there room for a waiting request, or was it made by stopping less urgent ones?"""
        leaving: list[Request] = []
        while not self._fits(request, hit, leaving):
            num_left = len(self._running) - len(leaving)
            if num_left == 0 or not self._may_stop(self._running[num_left - 1], request):
                return False
            leaving.append(self._running[num_left - 1])
        for other in leaving:
            self._preempt(other)
        return True

    def _fits(self, request: Request, hit: Hit, leaving: Sequence[Request]) -> bool:
        """Is there room for a request, with some of those that run gone?"""
        num_staying = len(self._running) - len(leaving)
        if num_staying >= self.limits.max_num_seqs:
            return False
        num_wanted = self._num_blocks_at_once(request, hit.num_skipped_blocks) - len(hit.block_ids)
        num_free = self._allocator.num_free_blocks_beside(hit, leaving)
        # Those that stay keep a block each to grow into beside what they lack, or the newcomer
        # would be preempted soon.
        num_left = num_free - max(0, num_wanted) - num_staying
        return num_left >= 0 and num_left >= self._num_blocks_promised(num_staying)

    def _num_blocks_promised(self, num_staying: int) -> int:
        """What the most urgent of those that run lack still."""
        return sum(
            max(0, self._num_blocks_at_once(r, r.num_unheld_blocks) - r.num_held_blocks)
            for r in self._running.first(num_staying)
        )

    def _num_blocks_at_once(self, request: Request, num_unseen: int) -> int:
        """Blocks for all tokens known and, unless that one is never computed, the next."""
        num_most = len(request.prompt_token_ids) + max(1, request.sampling.max_tokens) - 1
        num_tokens = min(request.num_tokens + 1, num_most, self.limits.max_model_len)
        return self._allocator.num_blocks_at_once(num_tokens, self.max_step_tokens, num_unseen)

    def _start(self, request: Request, hit: Hit) -> None:
        self._waiting.remove(request)
        self._allocator.begin(request, hit)
        self._running.add(request)
        request.num_times_passed = 0
        if request.scheduled_at is None:
            request.scheduled_at = self._clock()
            request.num_cached_tokens = request.num_computed_tokens
            if self.rules.has_prefix_cache and request.takes_prefix_hits:
                self._num_prefix_queries += request.num_tokens
                self._num_prefix_hits += request.num_computed_tokens

    def _make_room(self, request: Request, num_tokens: int) -> int:
        """Blocks for a running request's next num_tokens or fewer; 0 if it was the one to go."""
        while True:
            num_fitting = self._allocator.grow(request, num_tokens)
            if num_fitting > 0:
                return num_fitting
            if len(self._running) == 1:
                self._ended.append(self._end(request, Ending("error", self._outgrown(request))))
                return 0
            last = self._running[-1]
            self._preempt(last)
            if last is request:
                return 0

    def _preempt(self, request: Request) -> None:
        """Let a running request wait again; its tokens stay, and will be computed once more."""
        self._running.remove(request)
        self._allocator.release(request)
        self._waiting.add(request)
        self._num_preemptions += 1

    def _outgrown(self, request: Request) -> str:
        return (
            f"The request has {request.num_tokens} tokens and the whole KV cache holds "
            f"{self.pool.num_blocks * self.pool.block_size}; shorten the prompt, lower max_tokens, "
            "or raise --kv-cache-memory-bytes"
        )

    def _advance(self, chunk: Chunk, token_id: int | None, sampled: Sampled) -> Output | None:
        """Move a request by its chunk; None while its prompt is not computed to the end."""
        request = chunk.request
        name = request.request_id
        error = sampled.errors.get(name) or error_of(request)
        if error is not None:
            # Its blocks are not published: they may hold what made it fail.
            return self._end(request, Ending("error", error))
        self._allocator.note_computed(request, chunk.end)
        add_prompt_logprobs(request, chunk.start, sampled.prompt_logprobs.get(name, ()))
        if token_id is not None:
            ending = take_token(request, token_id, self._end_rules)
        elif request.samples or chunk.end < request.num_tokens:
            return None
        else:
            ending = Ending("length" if request.pooling is None else "stop")
        if ending is not None:
            self._forget(request)
        return to_output(request, ending, token_id, sampled)

    def _end(self, request: Request, ending: Ending) -> Output:
        """End a request that gets nothing more."""
        self._forget(request)
        return to_output(request, ending)

    def _forget(self, request: Request) -> None:
        del self._requests[request.request_id]
        if request in self._running:
            self._running.remove(request)
            self._allocator.release(request)
        else:
            self._waiting.remove(request)
