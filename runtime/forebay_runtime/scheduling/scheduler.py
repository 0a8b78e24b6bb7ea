"""Which tokens the next step computes, and what a step's tokens mean for their requests.

There are no prefill and decode phases: every request catches up from num_computed_tokens to
num_tokens, within a budget of tokens a step. The engine calls schedule, and settle with what came
of it, before the next schedule or after it: at most one step is in flight while the next is made.
Add and abort come between any two calls. Imports no torch.

Whoever must make room is the least urgent that runs, so the most urgent never stops. A request that
finds no room is passed by others, but only so often: then all wait until it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count

from forebay_runtime.request import Load, Output, Request
from forebay_runtime.scheduling import flight
from forebay_runtime.scheduling.admission import Admission, Rules
from forebay_runtime.scheduling.allocator import Allocator, Hit
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits, share_tokens
from forebay_runtime.scheduling.blocks import BlockPool, IntegrityError
from forebay_runtime.scheduling.finishing import (
    Ending,
    EndRules,
    add_prompt_logprobs,
    take_tokens,
    to_output,
)
from forebay_runtime.scheduling.pace import Pace
from forebay_runtime.scheduling.speculation import Speculation
from forebay_runtime.scheduling.waiting import OrderedRequests, order_of
from forebay_runtime.step_result import Sampled

_MOST_TIMES_PASSED = 16
"""Requests behind one that finds no room may run before it, as often as that."""

_MOST_LOOKED_AT = 16
"""Requests without room that one step looks at, so that a long queue costs a step little."""


class Scheduler:
    """Continuous batching over one block pool."""

    def __init__(
        self,
        pool: BlockPool,
        limits: Limits,
        eos_token_ids: frozenset[int],
        rules: Rules = Rules(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
        speculation: Speculation | None = None,
    ) -> None:
        self.pool = pool
        self.limits = limits
        self.eos_token_ids = eos_token_ids
        self.rules = rules
        self.pace = Pace(limits)
        self.speculation = speculation
        self._clock = clock
        self._scheduled_at = 0.0
        self._allocator = Allocator(pool, rules.window, rules.has_prefix_cache)
        self._end_rules = EndRules(eos_token_ids, limits.max_model_len)
        self._requests: dict[str, Request] = {}
        self._running = OrderedRequests(order_of(rules.policy))
        self._waiting = OrderedRequests(order_of(rules.policy))
        self._admission = Admission(self._allocator, limits, rules, self._running)
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
        """Pick the next step's tokens: some for everyone who runs and waits for none in flight."""
        self._scheduled_at = self._clock()
        self._admit()
        ready, missing = self._find_ready()
        num_allowed = self.pace.num_tokens_for(ready)
        chunks: list[Chunk] = []
        for request, num_tokens in zip(ready, share_tokens(missing, num_allowed), strict=True):
            # Those behind may have been preempted meanwhile, those before never.
            if not request.is_running:
                break
            num_fitting = self._make_room(request, num_tokens)
            if num_fitting:
                chunks.append(Chunk.of(request, request.num_launched_tokens, num_fitting))
        if self.speculation is not None:
            num_left = num_allowed - sum(chunk.num_tokens for chunk in chunks)
            chunks = self.speculation.extend(chunks, num_left, self._allocator.grow)
        chunks.sort(key=_place_in_batch)
        flight.launch(chunks)
        return Batch(tuple(chunks), num_allowed)

    def _find_ready(self) -> tuple[list[Request], list[int]]:
        """Those that run and need not wait for what flies, and how many tokens each misses."""
        most = self.limits.max_model_len
        missing = [flight.num_ready_tokens(request, most) for request in self._running]
        ready = [request for request, number in zip(self._running, missing, strict=True) if number]
        return ready, [number for number in missing if number]

    def settle(self, batch: Batch, sampled: Sampled, seconds: float = 0.0) -> list[Output]:
        """Record what a step computed; the outputs of those that got something or ended.

        seconds: what the step took by itself.
        """
        outputs, self._ended = self._ended, []
        self._num_step_tokens = batch.num_tokens
        self.pace.note_step(batch.chunks, batch.num_tokens_allowed, seconds)
        if self.speculation is not None:
            self.speculation.note_step(batch, sampled.token_ids, seconds)
        kept = batch.kept_tokens(sampled.token_ids)
        for chunk, token_ids in zip(batch.chunks, kept, strict=True):
            # What is left of a request that ended while its step flew is thrown away.
            if self._requests.get(chunk.request.request_id) is chunk.request:
                output = self._advance(chunk, token_ids, sampled)
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
            speculated=None if self.speculation is None else self.speculation.counts,
        )

    def check_integrity(self) -> None:
        """Check that blocks, tokens and lines add up.

        Raises: IntegrityError.
        """
        self._allocator.check_integrity(self._running)
        for request in self._waiting:
            if request.block_ids or request.num_unheld_blocks or request.num_launched_tokens:
                raise IntegrityError(f"request {request.request_id} waits and holds blocks")
        if len(self._running) + len(self._waiting) != len(self._requests):
            raise IntegrityError("a request is lost, or in two lines")

    def _admit(self) -> None:
        """Start those who wait and find room, the most urgent first."""
        without_room: list[Request] = []
        stopped: list[Request] = []
        self._admission.forget_promised()
        for request in self._waiting.in_turn():
            if not self._admission.has_seat_for(request) or not _may_be_passed(without_room):
                break
            if not self._admission.could_hold(request):
                self._end_outgrown(request)
                continue
            if self._admission.waits_for_long_prompts(request):
                continue
            hit = self._allocator.find_hit(request)
            if self._admission.waits_for_prefix(request, hit):
                continue
            leaving = self._admission.choose_leaving(request, hit)
            if leaving is None:
                without_room.append(request)
                continue
            for other in leaving:
                self._stop(other)
                self._admission.forget_promised()
            stopped += leaving
            self._start(request, hit)
            self._admission.note_started(request)
            for other in without_room:
                other.num_times_passed += 1
        for request in stopped:
            self._waiting.add(request)

    def _start(self, request: Request, hit: Hit) -> None:
        self._waiting.remove(request)
        self._allocator.begin(request, hit)
        self._running.add(request)
        request.is_running = True
        if request.scheduled_at is None:
            request.scheduled_at = self._scheduled_at
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
            if request.num_flying_tokens:
                # What flies may end it or give blocks back: nobody stops for it before.
                return 0
            if len(self._running) == 1:
                self._end_outgrown(request)
                return 0
            last = self._running[-1]
            self._preempt(last)
            if last is request:
                return 0

    def _preempt(self, request: Request) -> None:
        """Let a running request wait again; its tokens stay, and will be computed once more."""
        self._stop(request)
        self._waiting.add(request)

    def _stop(self, request: Request) -> None:
        self._let_go(request)
        self._num_preemptions += 1

    def _let_go(self, request: Request) -> None:
        request.is_running = False
        self._running.remove(request)
        self._allocator.release(request)

    def _end_outgrown(self, request: Request) -> None:
        """End a request that the whole cache cannot hold."""
        error = (
            f"The request has {request.num_tokens} tokens and the whole KV cache holds "
            f"{self.pool.num_blocks * self.pool.block_size}; shorten the prompt, lower max_tokens, "
            "or raise --kv-cache-memory-bytes"
        )
        self._ended.append(self._end(request, Ending("error", error)))

    def _advance(self, chunk: Chunk, token_ids: tuple[int, ...], sampled: Sampled) -> Output | None:
        """Move a request by its chunk; None while its prompt is not computed to the end."""
        request = chunk.request
        name = request.request_id
        is_kept = flight.land(chunk)
        error = sampled.errors.get(name)
        if error is None and request.constraint is not None:
            error = request.constraint.error
        if error is not None:
            # Its blocks are not published: they may hold what made it fail.
            return self._end(request, Ending("error", error))
        if request.sampling.num_prompt_logprobs is not None:
            add_prompt_logprobs(request, chunk.start, sampled.prompt_logprobs.get(name, ()))
        token_ids, ending = take_tokens(request, token_ids, self._end_rules)
        if is_kept:
            # What was proposed in vain is computed too, and never read: the next step writes there.
            num_vain = 1 + len(chunk.proposed) - len(token_ids) if chunk.proposed else 0
            self._allocator.note_computed(request, chunk.end - num_vain)
        if not token_ids:
            if request.samples or chunk.end < request.num_tokens:
                return None
            ending = Ending("length" if request.pooling is None else "stop")
        if ending is not None:
            self._forget(request)
        return to_output(request, ending, token_ids, sampled)

    def _end(self, request: Request, ending: Ending) -> Output:
        """End a request that gets nothing more."""
        self._forget(request)
        return to_output(request, ending)

    def _forget(self, request: Request) -> None:
        del self._requests[request.request_id]
        if request.is_running:
            self._let_go(request)
        else:
            self._waiting.remove(request)


def _place_in_batch(chunk: Chunk) -> tuple[bool, int]:
    return chunk.num_tokens > 1, chunk.start + chunk.num_tokens


def _may_be_passed(without_room: Sequence[Request]) -> bool:
    if len(without_room) >= _MOST_LOOKED_AT:
        return False
    return all(request.num_times_passed < _MOST_TIMES_PASSED for request in without_room)
