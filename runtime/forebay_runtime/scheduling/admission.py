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
    """The rules, held against those that run and the blocks that they leave.

    What those that run lack is added up once for all decisions of a step.
    """

    def __init__(
        self, allocator: Allocator, limits: Limits, rules: Rules, running: OrderedRequests
    ) -> None:
        """allocator and running are looked at, and changed by the scheduler alone."""
        self._allocator = allocator
        self._limits = limits
        self._rules = rules
        self._running = running
        self._num_promised: int | None = None
        """What all that run lack still, once somebody asked, until forget_promised."""

    def forget_promised(self) -> None:
        """Say that requests were computed, or stopped, since the last decision."""
        self._num_promised = None

    def note_started(self, request: Request) -> None:
        """Say that a request has started, and nothing else happened since the last decision."""
        if self._num_promised is not None:
            self._num_promised += self._num_blocks_lacked(request)

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
        if num_staying < len(self._running):
            return sum(map(self._num_blocks_lacked, self._running.first(num_staying)))
        if self._num_promised is None:
            self._num_promised = sum(map(self._num_blocks_lacked, self._running))
        return self._num_promised

    def _num_blocks_lacked(self, running: Request) -> int:
        num_wanted = self._num_blocks_at_once(running, running.num_unheld_blocks)
        return max(0, num_wanted - running.num_held_blocks)

    def _num_blocks_at_once(self, request: Request, num_unseen: int) -> int:
        """Blocks for all tokens known and, unless that one is never computed, the next."""
        num_most = len(request.prompt_token_ids) + max(1, request.sampling.max_tokens) - 1
        num_tokens = min(request.num_coming_tokens + 1, num_most, self._limits.max_model_len)
        num_step_tokens = self._limits.max_num_batched_tokens
        return self._allocator.num_blocks_at_once(num_tokens, num_step_tokens, num_unseen)
