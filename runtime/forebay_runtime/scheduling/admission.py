"""Who of those that wait may start beside those that run.

Pure decisions for the scheduler: nothing here starts, stops or takes anything. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay_runtime.request import Request
from forebay_runtime.scheduling.allocator import Allocator, Hit
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.scheduling.waiting import OrderedRequests, Policy


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


class Admission:
    """The rules, held against those that run and the blocks that they leave."""

    def __init__(
        self, allocator: Allocator, limits: Limits, rules: Rules, running: OrderedRequests
    ) -> None:
        """allocator and running are looked at, and changed by the scheduler alone."""
        self._allocator = allocator
        self._limits = limits
        self._rules = rules
        self._running = running

    def has_seat_for(self, request: Request) -> bool:
        """Is a seat free, or held by someone who would have to give it up?"""
        has_free_seat = len(self._running) < self._limits.max_num_seqs
        return has_free_seat or self._may_stop(self._running[-1], request)

    def could_hold(self, request: Request) -> bool:
        """Is the whole cache large enough for it?"""
        return self._num_blocks_at_once(request, 0) <= self._allocator.pool.num_blocks

    def waits_for_long_prompts(self, request: Request) -> bool:
        """Is its prompt long, with as many long ones being read as may be?"""
        most = self._rules.long_prompt_tokens
        if most is None or request.num_tokens <= most:
            return False
        num_long = sum(
            r.num_tokens - (r.num_cached_tokens or 0) > most
            for r in self._running
            if r.num_launched_tokens < len(r.prompt_token_ids)
        )
        return num_long >= self._rules.max_long_prompts

    def waits_for_prefix(self, request: Request, hit: Hit) -> bool:
        """Will most of what it lacks soon be there, as someone before it computes that now?"""
        computer = self._allocator.find_computer(request, hit)
        return computer is not None and self._running.is_before(computer, request)

    def choose_leaving(self, request: Request, hit: Hit) -> list[Request] | None:
        """Who must stop so that a request has room, the fewest; None if it has none even so."""
        leaving: list[Request] = []
        while not self._fits(request, hit, leaving):
            num_left = len(self._running) - len(leaving)
            if num_left == 0 or not self._may_stop(self._running[num_left - 1], request):
                return None
            leaving.append(self._running[num_left - 1])
        return leaving

    def _may_stop(self, running: Request, urgent: Request) -> bool:
        # Only for who is strictly more urgent: equals would stop each other in turn.
        return self._rules.policy == "priority" and urgent.priority < running.priority

    def _fits(self, request: Request, hit: Hit, leaving: Sequence[Request]) -> bool:
        num_staying = len(self._running) - len(leaving)
        if num_staying >= self._limits.max_num_seqs:
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
        num_tokens = min(request.num_coming_tokens + 1, num_most, self._limits.max_model_len)
        num_step_tokens = self._limits.max_num_batched_tokens
        return self._allocator.num_blocks_at_once(num_tokens, num_step_tokens, num_unseen)
