"""What one step picks, who makes room, and who passes whom."""

import pytest

from forebay_runtime.request import Load, Output
from forebay_runtime.scheduling.batch import share_tokens
from scheduler_play import advance, build_scheduler, finish, names, picked, request, told


def test_a_long_prompt_is_computed_in_chunks_and_sampled_after_the_last() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 40))
    assert [told(advance(scheduler)) for _ in range(3)] == [[], [], [("a", (1,), None)]]


def test_running_requests_get_their_token_beside_a_long_prompt() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 4))
    scheduler.add(request("b", 4))
    advance(scheduler)
    scheduler.add(request("long", 40))
    assert picked(scheduler.schedule()) == [("a", 4, 1), ("b", 4, 1), ("long", 0, 14)]


def test_every_running_request_gets_a_token_in_every_step_of_a_6000_token_prompt() -> None:
    scheduler = build_scheduler(4_000, 8, 512, max_model_len=8_192)
    for name in "abcdefg":
        scheduler.add(request(name, 20, max_tokens=100))
    advance(scheduler)
    scheduler.add(request("long", 6_000))
    steps = []
    while "long" not in {output.request_id for output in (steps or [[]])[-1]}:
        steps.append(advance(scheduler))
    assert len(steps) == 12
    assert all({o.request_id for o in outputs} >= set("abcdefg") for outputs in steps)


def test_a_short_prompt_does_not_wait_for_a_long_one_that_came_first() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("long", 60))
    advance(scheduler)
    scheduler.add(request("short", 6))
    assert told(advance(scheduler)) == [("short", (1,), None)]


@pytest.mark.parametrize(
    ("missing", "num_tokens", "shares"),
    [
        pytest.param([], 8, [], id="nobody"),
        pytest.param([1, 1, 1], 8, [1, 1, 1], id="decodes"),
        pytest.param([1, 50], 8, [1, 7], id="a-decode-and-a-prompt"),
        pytest.param([50, 50], 8, [7, 1], id="equal-prompts-in-turn"),
        pytest.param([50, 2], 8, [6, 2], id="a-short-prompt-whole"),
        pytest.param([50, 5, 5], 11, [5, 5, 1], id="the-urgent-half-then-the-least-missing"),
        pytest.param([50, 50, 50], 3, [1, 1, 1], id="one-each"),
        pytest.param([3, 4], 100, [3, 4], id="more-than-enough"),
    ],
)
def test_a_step_is_shared(missing: list[int], num_tokens: int, shares: list[int]) -> None:
    assert share_tokens(missing, num_tokens) == shares


def test_decodes_lie_together_and_by_length() -> None:
    scheduler = build_scheduler()
    for name, num_tokens in (("long", 7), ("short", 2)):
        scheduler.add(request(name, num_tokens))
    advance(scheduler)
    scheduler.add(request("new", 3))
    assert picked(scheduler.schedule()) == [("short", 2, 1), ("long", 7, 1), ("new", 0, 3)]


def test_the_load_counts_who_runs_who_waits_and_what_is_held() -> None:
    scheduler = build_scheduler(max_num_seqs=2)
    for name in "abc":
        scheduler.add(request(name, 3))
    advance(scheduler)
    assert scheduler.load_now() == Load(
        num_running=2,
        num_waiting=1,
        kv_cache_usage=0.02,
        free_kv_tokens=392,
        num_prefix_queries=6,
        num_step_tokens=6,
        kv_fragmentation=0.25,
    )


def test_the_newest_makes_room_and_comes_back_first() -> None:
    scheduler = build_scheduler(num_blocks=6)
    for name in ("old", "new"):
        scheduler.add(request(name, 7, max_tokens=16))
    scheduler.add(request("later", 7))
    advance(scheduler)
    while len(scheduler.running) == 2:
        advance(scheduler)
    assert names(scheduler.running) == ["old"]
    assert names(scheduler.waiting) == ["new", "later"]
    assert scheduler.waiting[0].output_token_ids, "what it had is kept, and computed again"
    assert scheduler.load_now().num_preemptions == 1
    outputs = finish(scheduler)
    assert {o.request_id for o in outputs if o.finish_reason == "length"} == {"old", "new", "later"}


def test_a_prompt_that_the_whole_cache_could_not_hold_ends_with_an_error() -> None:
    scheduler = build_scheduler(num_blocks=4)
    scheduler.add(request("huge", 20))
    scheduler.add(request("small", 2))
    outputs = advance(scheduler)
    assert told(outputs) == [("huge", (), "error"), ("small", (1,), None)]
    assert outputs[0].error == (
        "The request has 20 tokens and the whole KV cache holds 16; shorten the prompt, "
        "lower max_tokens, or raise --kv-cache-memory-bytes"
    )


def test_a_request_that_outgrows_the_cache_ends_with_an_error_and_others_go_on() -> None:
    scheduler = build_scheduler(num_blocks=4)
    scheduler.add(request("grows", 10, max_tokens=50))
    scheduler.add(request("small", 2, max_tokens=2))
    outputs = finish(scheduler)
    ends = {o.request_id: o.finish_reason for o in outputs if o.finish_reason}
    assert ends == {"grows": "error", "small": "length"}
    assert sum(len(o.token_ids) for o in outputs if o.request_id == "grows") == 7


def test_a_prompt_that_fills_the_cache_still_gets_its_one_token() -> None:
    scheduler = build_scheduler(num_blocks=4)
    scheduler.add(request("full", 16, max_tokens=1))
    assert told(advance(scheduler)) == [("full", (1,), "length")]


@pytest.mark.parametrize("max_num_seqs", [3, 40], ids=["one-by-one", "all-in-one-step"])
def test_a_request_without_room_is_passed_but_only_so_often(max_num_seqs: int) -> None:
    scheduler = build_scheduler(60, max_num_seqs, max_num_batched_tokens=64, max_model_len=256)
    scheduler.add(request("holder", 16, max_tokens=48))
    advance(scheduler)
    scheduler.add(request("large", 230, max_tokens=1))
    for index in range(30):
        scheduler.add(request(f"small-{index}", 2, max_tokens=1))
    ended = [o.request_id for o in finish(scheduler) if o.finish_reason]
    assert ended.index("holder") == 16, "so many passed while the first one held the room"
    assert ended.index("large") < 30


def test_what_passes_leaves_no_less_room_than_it_found() -> None:
    scheduler = build_scheduler(num_blocks=10, max_num_batched_tokens=64)
    scheduler.add(request("holder", 20, max_tokens=2))
    advance(scheduler)
    scheduler.add(request("large", 24, max_tokens=2))
    scheduler.add(request("small", 2, max_tokens=1))
    assert told(advance(scheduler)) == [("holder", (1,), "length"), ("small", (1,), "length")]
    assert names(scheduler.waiting) == ["large"]
    advance(scheduler)
    assert names(scheduler.running) == ["large"]


@pytest.mark.parametrize("num_steps", [0, 1, 3], ids=["waiting", "in-prefill", "in-decode"])
def test_an_abort_frees_the_blocks_and_is_reported_once(num_steps: int) -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 24))
    for _ in range(num_steps):
        advance(scheduler)
    scheduler.abort("a")
    scheduler.abort("a")
    assert not scheduler.knows("a")
    assert scheduler.load_now().free_kv_tokens == 400
    assert told(advance(scheduler)) == [("a", (), "abort")]
    assert not scheduler.has_work


def test_an_abort_of_an_unknown_request_is_no_error() -> None:
    scheduler = build_scheduler()
    scheduler.abort("nobody")
    assert not scheduler.has_work


def test_an_abort_of_one_that_never_ran_has_nothing_else_to_tell() -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3))
    scheduler.abort("a")
    assert advance(scheduler) == [Output("a", finish_reason="abort")]


def test_with_a_window_what_a_request_holds_is_bounded_by_window_and_chunk() -> None:
    scheduler = build_scheduler(100, 2, 16, max_model_len=400, window=12)
    scheduler.add(request("a", 300, max_tokens=60))
    most = 0
    while scheduler.has_work:
        batch_outputs = advance(scheduler)
        most = max(most, scheduler.pool.num_held_blocks)
    assert batch_outputs[-1].finish_reason == "length"
    assert most <= (12 - 1 + 16) // 4 + 2


def test_with_a_window_a_prompt_larger_than_the_pool_is_served_in_smaller_steps() -> None:
    scheduler = build_scheduler(4, 2, 32, max_model_len=400, window=12)
    scheduler.add(request("a", 300, max_tokens=3))
    assert finish(scheduler)[-1].finish_reason == "length"
