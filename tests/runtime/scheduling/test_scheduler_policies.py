"""Whose turn it is: by arrival, by priority, and with a limit on long prompts."""

import pytest

from scheduler_play import advance, build_scheduler, finish, names, picked, request


def ends(scheduler: object) -> list[str]:
    return [o.request_id for o in finish(scheduler) if o.finish_reason]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        pytest.param("fcfs", ["a", "b", "c", "d"], id="by-arrival-alone"),
        pytest.param("priority", ["c", "b", "d", "a"], id="by-priority-then-arrival"),
    ],
)
def test_requests_run_in_order(policy: str, order: list[str]) -> None:
    scheduler = build_scheduler(max_num_seqs=1, policy=policy)
    for name, priority in (("a", 5), ("b", 1), ("c", -3), ("d", 1)):
        scheduler.add(request(name, 3, max_tokens=2, priority=priority))
    assert ends(scheduler) == order


def test_an_urgent_request_takes_the_seat_of_the_least_urgent() -> None:
    scheduler = build_scheduler(max_num_seqs=2, policy="priority")
    for name, priority in (("a", 1), ("b", 2)):
        scheduler.add(request(name, 3, priority=priority))
    advance(scheduler)
    scheduler.add(request("urgent", 3, priority=0))
    advance(scheduler)
    assert (names(scheduler.running), names(scheduler.waiting)) == (["urgent", "a"], ["b"])
    assert scheduler.waiting[0].output_token_ids == [1], "what it had is kept"
    assert scheduler.load_now().num_preemptions == 1


def test_an_urgent_request_takes_the_blocks_of_no_more_than_it_needs() -> None:
    scheduler = build_scheduler(num_blocks=16, max_num_batched_tokens=64, policy="priority")
    for name in ("a", "b", "c"):
        scheduler.add(request(name, 14, priority=1))
    advance(scheduler)
    scheduler.add(request("urgent", 14))
    advance(scheduler)
    assert (names(scheduler.running), names(scheduler.waiting)) == (["urgent", "a", "b"], ["c"])


@pytest.mark.parametrize(
    ("policy", "priority"),
    [
        pytest.param("priority", 1, id="as-urgent"),
        pytest.param("priority", 2, id="less-urgent"),
        pytest.param("fcfs", 0, id="priority-means-nothing"),
    ],
)
def test_a_seat_is_taken_only_from_the_strictly_less_urgent(policy: str, priority: int) -> None:
    scheduler = build_scheduler(max_num_seqs=1, policy=policy)
    scheduler.add(request("a", 3, priority=1))
    advance(scheduler)
    scheduler.add(request("b", 3, priority=priority))
    advance(scheduler)
    assert (names(scheduler.running), scheduler.load_now().num_preemptions) == (["a"], 0)


def test_nobody_is_stopped_for_one_that_would_not_fit_all_the_same() -> None:
    scheduler = build_scheduler(num_blocks=14, max_num_batched_tokens=64, policy="priority")
    scheduler.add(request("as-urgent", 24, priority=0))
    scheduler.add(request("less", 8, priority=1))
    advance(scheduler)
    scheduler.add(request("large", 40, priority=0))
    advance(scheduler)
    assert names(scheduler.running) == ["as-urgent", "less"]
    assert scheduler.load_now().num_preemptions == 0


def test_nobody_is_stopped_for_blocks_that_another_holds_too() -> None:
    scheduler = build_scheduler(num_blocks=12, max_num_batched_tokens=64, policy="priority")
    shared = list(range(100, 122))
    for name, priority in (("keeper", 0), ("sharer", 1)):
        scheduler.add(request(name, shared, priority=priority))
        advance(scheduler)
    scheduler.add(request("urgent", 22))
    advance(scheduler)
    assert names(scheduler.running) == ["keeper", "sharer"]


def test_the_least_urgent_makes_room_even_if_it_came_first() -> None:
    scheduler = build_scheduler(num_blocks=6, policy="priority")
    for name, priority in (("first", 2), ("second", 1)):
        scheduler.add(request(name, 7, max_tokens=14, priority=priority))
    while len(scheduler.running) != 1:
        advance(scheduler)
    assert names(scheduler.running) == ["second"]
    assert ends(scheduler) == ["second", "first"]


def test_long_prompts_are_read_so_many_at_a_time_and_others_pass() -> None:
    scheduler = build_scheduler(long_prompt_tokens=20, max_long_prompts=1)
    for name, num_tokens in (("long-1", 40), ("long-2", 40), ("short", 20)):
        scheduler.add(request(name, num_tokens))
    advance(scheduler)
    assert (names(scheduler.running), names(scheduler.waiting)) == (["long-1", "short"], ["long-2"])
    while "long-2" not in names(scheduler.running):
        advance(scheduler)
    assert scheduler.running[0].output_token_ids, "the next is read once the first has been"


@pytest.mark.parametrize(
    ("rules", "running"),
    [
        pytest.param({}, ["a", "b", "c"], id="no-limit"),
        pytest.param({"long_prompt_tokens": 40}, ["a", "b", "c"], id="none-is-long"),
        pytest.param({"long_prompt_tokens": 39, "max_long_prompts": 2}, ["a", "b"], id="two"),
    ],
)
def test_long_prompts_are_limited_as_told(rules: dict[str, int], running: list[str]) -> None:
    scheduler = build_scheduler(**rules)  # type: ignore[arg-type]
    for name in "abc":
        scheduler.add(request(name, 40))
    advance(scheduler)
    assert names(scheduler.running) == running


def test_a_long_prompt_that_the_cache_has_is_not_read_and_stops_no_other() -> None:
    scheduler = build_scheduler(long_prompt_tokens=20, max_long_prompts=1)
    prompt = list(range(100, 140))
    scheduler.add(request("before", prompt, max_tokens=1))
    finish(scheduler)
    scheduler.add(request("known", prompt))
    scheduler.add(request("long", 40))
    assert picked(scheduler.schedule()) == [("long", 0, 12), ("known", 36, 4)]


def test_a_long_queue_of_large_requests_hides_no_small_one_for_ever() -> None:
    scheduler = build_scheduler(num_blocks=12, max_num_seqs=2)
    scheduler.add(request("holder", 16, max_tokens=20))
    advance(scheduler)
    for index in range(40):
        scheduler.add(request(f"large-{index}", 30, max_tokens=1))
    scheduler.add(request("small", 1, max_tokens=1))
    assert len(ends(scheduler)) == 42
