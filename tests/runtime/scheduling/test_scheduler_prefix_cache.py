"""Prompts that begin alike share blocks, and nobody gets a block that is not its own text's."""

from typing import Any

import pytest

from forebay_runtime.scheduling.scheduler import Scheduler
from scheduler_play import advance, build_scheduler, finish, picked, request

PROMPT = list(range(100, 122))  # five full blocks and two tokens more


def served(scheduler: Scheduler, name: str, prompt: list[int], **more: Any) -> int | None:
    """Serve a request alone; the tokens that the cache spared it."""
    scheduler.add(request(name, prompt, **{"max_tokens": 1, **more}))
    outputs = finish(scheduler)
    assert [o.num_cached_tokens is not None for o in outputs] == [True] + [False] * (
        len(outputs) - 1
    )
    return outputs[0].num_cached_tokens


@pytest.mark.parametrize(
    ("prompt", "num_cached"),
    [
        pytest.param(PROMPT, 20, id="the-same"),
        pytest.param(PROMPT[:20], 16, id="all-in-the-cache-and-one-is-computed-still"),
        pytest.param(PROMPT[:21], 20, id="one-more-than-in-the-cache"),
        pytest.param(PROMPT[:10] + [5] * 20, 8, id="begins-alike"),
        pytest.param([5] + PROMPT[1:], 0, id="first-token-differs"),
        pytest.param(PROMPT[4:], 0, id="the-same-blocks-after-another-beginning"),
        pytest.param(PROMPT[:3], 0, id="shorter-than-a-block"),
    ],
)
def test_what_is_spared_is_whole_blocks_of_the_same_beginning(
    prompt: list[int], num_cached: int
) -> None:
    scheduler = build_scheduler()
    assert served(scheduler, "first", PROMPT) == 0
    assert served(scheduler, "second", prompt) == num_cached


@pytest.mark.parametrize(
    ("more", "num_cached"),
    [
        pytest.param({"cache_salt": "mine"}, 20, id="same-salt"),
        pytest.param({"cache_salt": "other"}, 0, id="other-salt"),
        pytest.param({}, 0, id="no-salt"),
    ],
)
def test_only_requests_of_the_same_salt_share(more: dict[str, str], num_cached: int) -> None:
    scheduler = build_scheduler()
    served(scheduler, "first", PROMPT, cache_salt="mine")
    assert served(scheduler, "second", PROMPT, **more) == num_cached


@pytest.mark.parametrize(
    ("more", "num_cached"),
    [
        pytest.param({"num_prompt_logprobs": 0}, 0, id="prompt-logprobs"),
        pytest.param({"pooling": "mean"}, 0, id="mean-of-all"),
        pytest.param({"pooling": "last"}, 20, id="last-alone"),
        pytest.param({"max_tokens": 0}, 20, id="nothing-sampled"),
    ],
)
def test_what_is_read_off_all_of_a_prompt_is_computed(
    more: dict[str, Any], num_cached: int
) -> None:
    scheduler = build_scheduler()
    served(scheduler, "first", PROMPT, **more)
    assert served(scheduler, "second", PROMPT, **more) == num_cached
    assert served(scheduler, "third", PROMPT) == 20, "what it computed serves others all the same"


def test_without_the_cache_nothing_is_looked_up() -> None:
    scheduler = build_scheduler(has_prefix_cache=False)
    served(scheduler, "first", PROMPT)
    assert served(scheduler, "second", PROMPT) == 0
    assert scheduler.load_now().num_prefix_queries == 0


def test_queries_and_hits_are_counted_in_tokens() -> None:
    scheduler = build_scheduler()
    served(scheduler, "first", PROMPT)
    served(scheduler, "second", PROMPT)
    served(scheduler, "scored", PROMPT, num_prompt_logprobs=0)
    load = scheduler.load_now()
    assert (load.num_prefix_queries, load.num_prefix_hits) == (44, 20)


def test_an_answer_is_in_the_cache_for_the_next_turn() -> None:
    scheduler = build_scheduler()
    served(scheduler, "first", PROMPT, max_tokens=7)
    next_turn = PROMPT + [1] * 7 + [50, 51]
    assert served(scheduler, "second", next_turn) == 28


def test_running_requests_share_what_is_computed_and_hold_it_once() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=64)
    scheduler.add(request("a", PROMPT))
    advance(scheduler)
    scheduler.add(request("b", PROMPT))
    assert picked(scheduler.schedule()) == [("a", 22, 1), ("b", 20, 2)]
    first, second = scheduler.running
    assert first.block_ids[:5] == second.block_ids[:5]
    assert scheduler.pool.num_held_blocks == 7


def test_requests_that_come_together_compute_what_they_share_once() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=64)
    for name in "abc":
        scheduler.add(request(name, PROMPT))
    assert picked(scheduler.schedule()) == [("a", 0, 22)]


def test_who_waits_for_a_shared_prefix_goes_on_alone_if_nobody_computes_it_any_more() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", PROMPT))
    scheduler.add(request("b", PROMPT))
    advance(scheduler)
    scheduler.abort("a")
    assert picked(scheduler.schedule()) == [("b", 16, 6)]


@pytest.mark.parametrize(
    ("num_shared", "num_started"),
    [pytest.param(8, 2, id="little"), pytest.param(16, 1, id="most-of-it")],
)
def test_a_request_waits_for_a_prefix_only_if_it_is_most_of_what_it_lacks(
    num_shared: int, num_started: int
) -> None:
    scheduler = build_scheduler(max_num_batched_tokens=64)
    scheduler.add(request("a", PROMPT))
    scheduler.add(request("b", PROMPT[:num_shared] + [5] * 10))
    scheduler.schedule()
    assert len(scheduler.running) == num_started


def test_an_urgent_request_waits_for_no_less_urgent_one() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=4, policy="priority")
    scheduler.add(request("later", PROMPT, priority=1))
    advance(scheduler)
    scheduler.add(request("urgent", PROMPT))
    scheduler.schedule()
    assert len(scheduler.running) == 2


@pytest.mark.parametrize(
    ("more", "num_queries"),
    [
        pytest.param({}, 25, id="counted-once"),
        pytest.param({"num_prompt_logprobs": 0}, 3, id="whose-prompt-was-scored-before"),
    ],
)
def test_a_preempted_request_finds_its_own_blocks_again(
    more: dict[str, int], num_queries: int
) -> None:
    scheduler = build_scheduler(max_num_seqs=1, policy="priority", max_num_batched_tokens=64)
    scheduler.add(request("a", PROMPT, priority=1, **more))
    advance(scheduler)
    advance(scheduler)
    scheduler.add(request("urgent", 3, max_tokens=1))
    advance(scheduler)
    assert picked(scheduler.schedule()) == [("a", 20, 4)]
    assert scheduler.load_now().num_prefix_queries == num_queries


def test_admission_needs_no_room_for_what_another_holds() -> None:
    scheduler = build_scheduler(num_blocks=9, max_num_batched_tokens=64)
    scheduler.add(request("a", PROMPT))
    advance(scheduler)
    scheduler.add(request("b", PROMPT))
    scheduler.schedule()
    assert len(scheduler.running) == 2


def test_admission_needs_room_for_what_nobody_holds_though_it_is_in_the_cache() -> None:
    scheduler = build_scheduler(num_blocks=12, max_num_batched_tokens=64)
    served(scheduler, "before", PROMPT)
    scheduler.add(request("holder", 22))
    advance(scheduler)
    scheduler.add(request("b", [*PROMPT, 1, 2, 3]))
    scheduler.schedule()
    assert len(scheduler.running) == 1


def test_a_hit_is_not_evicted_by_the_request_that_takes_it() -> None:
    scheduler = build_scheduler(num_blocks=6)
    served(scheduler, "first", PROMPT)
    assert served(scheduler, "second", PROMPT, max_tokens=2) == 20


def test_blocks_that_are_needed_are_forgotten_from_the_end_of_the_oldest() -> None:
    scheduler = build_scheduler(num_blocks=9)
    served(scheduler, "first", PROMPT)
    served(scheduler, "second", [50] * 22)
    assert served(scheduler, "third", PROMPT) == 12


@pytest.mark.parametrize(
    ("num_tokens", "num_cached"),
    [
        pytest.param(40, 36, id="whole"),
        pytest.param(22, 20, id="from-the-middle"),
        pytest.param(10, 0, id="from-where-it-was-overwritten"),
    ],
)
def test_with_a_window_a_hit_needs_only_what_the_window_reaches(
    num_tokens: int, num_cached: int
) -> None:
    scheduler = build_scheduler(num_blocks=8, window=9)
    prompt = list(range(100, 140))
    served(scheduler, "first", prompt)
    assert served(scheduler, "second", prompt[:num_tokens]) == num_cached


def test_a_prompt_is_hashed_once_however_long_it_waits() -> None:
    scheduler = build_scheduler(num_blocks=20)
    scheduler.add(request("holder", 40))
    advance(scheduler)
    waiting = request("waits", 60)
    scheduler.add(waiting)
    advance(scheduler)
    known = list(waiting.prefixes)
    for _ in range(3):
        advance(scheduler)
    assert len(known) == 14
    assert [a is b for a, b in zip(waiting.prefixes, known, strict=True)] == [True] * 14


def test_what_a_broken_request_computed_is_not_shared() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=64)
    scheduler.add(request("broken", PROMPT))
    advance(scheduler, errors={"broken": "The model gave no numbers"})
    assert served(scheduler, "next", PROMPT) == 0
