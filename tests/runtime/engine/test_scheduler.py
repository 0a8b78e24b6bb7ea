"""What one step picks, who makes room, and how requests end."""

import pytest

from fake_runner import answer_alone
from forebay_runtime.blocks import BlockPool
from forebay_runtime.request import Load, Output, Request, SamplingParams
from forebay_runtime.scheduler import Batch, Limits, Scheduler

EOS = 7


def build_scheduler(
    num_blocks: int = 100, max_num_seqs: int = 4, max_num_batched_tokens: int = 16
) -> Scheduler:
    limits = Limits(max_num_seqs, max_num_batched_tokens, max_model_len=64)
    return Scheduler(BlockPool(num_blocks, block_size=4), limits, frozenset({EOS}))


def request(name: str, num_prompt_tokens: int, max_tokens: int = 8, **sampling: object) -> Request:
    params = SamplingParams(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return Request(name, [1] * num_prompt_tokens, params)


def picked(batch: Batch) -> list[tuple[str, int, int]]:
    return [(c.request.request_id, c.start, c.num_tokens) for c in batch.chunks]


def advance(scheduler: Scheduler, token_id: int = 1) -> list[Output]:
    batch = scheduler.schedule()
    return scheduler.settle(batch, [token_id] * len(batch.sampled))


def test_a_long_prompt_is_computed_in_chunks_and_sampled_after_the_last() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 40))
    outputs = [advance(scheduler) for _ in range(3)]
    assert outputs == [[], [], [Output("a", (1,))]]


def test_chunks_follow_each_other_until_the_prompt_is_computed() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 40))
    steps = []
    while not steps or not steps[-1].sampled:
        steps.append(scheduler.schedule())
        scheduler.settle(steps[-1], [1] * len(steps[-1].sampled))
    assert [picked(step) for step in steps] == [[("a", 0, 16)], [("a", 16, 16)], [("a", 32, 8)]]


def test_running_requests_get_their_token_beside_a_long_prompt() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 4))
    scheduler.add(request("b", 4))
    advance(scheduler)
    scheduler.add(request("long", 40))
    assert picked(scheduler.schedule()) == [("a", 4, 1), ("b", 4, 1), ("long", 0, 14)]


def test_a_prompt_in_progress_leaves_a_token_for_each_behind_it() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=8)
    scheduler.add(request("long", 20))
    scheduler.add(request("b", 2))
    advance(scheduler)
    advance(scheduler)
    assert picked(scheduler.schedule()) == [("b", 0, 2), ("long", 16, 4)]
    assert [r.request_id for r in scheduler.running] == ["long", "b"]


def test_no_more_run_than_max_num_seqs() -> None:
    scheduler = build_scheduler(max_num_seqs=2)
    for name in "abc":
        scheduler.add(request(name, 2))
    advance(scheduler)
    assert scheduler.load_now() == Load(2, 1, kv_cache_usage=0.02, free_kv_tokens=392)


def test_a_small_request_does_not_overtake_a_large_one_that_waits() -> None:
    scheduler = build_scheduler(num_blocks=8)
    scheduler.add(request("a", 12))
    advance(scheduler)
    scheduler.add(request("large", 20))
    scheduler.add(request("small", 1))
    assert picked(scheduler.schedule()) == [("a", 12, 1)]


def test_the_newest_makes_room_and_comes_back_first() -> None:
    scheduler = build_scheduler(num_blocks=6)
    for name in ("old", "new"):
        scheduler.add(request(name, 7, max_tokens=20))
    scheduler.add(request("later", 3))
    advance(scheduler)
    while len(scheduler.running) == 2:
        scheduler.check_integrity()
        advance(scheduler)
    assert [r.request_id for r in scheduler.running] == ["old"]
    assert [r.request_id for r in scheduler.waiting] == ["new", "later"]
    assert scheduler.waiting[0].output_token_ids, "what it had is kept, and computed again"
    assert scheduler.waiting[0].num_computed_tokens == 0


def test_a_prompt_that_the_whole_cache_could_not_hold_ends_with_an_error() -> None:
    scheduler = build_scheduler(num_blocks=4)
    scheduler.add(request("huge", 20))
    scheduler.add(request("small", 2))
    outputs = advance(scheduler)
    assert [(o.request_id, o.finish_reason) for o in outputs] == [
        ("huge", "error"),
        ("small", None),
    ]
    assert outputs[0].error == (
        "The request has 20 tokens and the whole KV cache holds 16; shorten the prompt, "
        "lower max_tokens, or raise --kv-cache-memory-bytes"
    )


def test_a_request_that_outgrows_the_cache_ends_with_an_error_and_others_go_on() -> None:
    scheduler = build_scheduler(num_blocks=4)
    scheduler.add(request("grows", 10, max_tokens=50))
    scheduler.add(request("small", 2, max_tokens=2))
    outputs: list[Output] = []
    while scheduler.has_work:
        outputs += advance(scheduler)
    ends = {o.request_id: o.finish_reason for o in outputs if o.finish_reason}
    assert ends == {"grows": "error", "small": "length"}
    assert sum(len(o.token_ids) for o in outputs if o.request_id == "grows") == 7


def test_a_prompt_that_fills_the_cache_still_gets_its_one_token() -> None:
    scheduler = build_scheduler(num_blocks=4)
    scheduler.add(request("full", 16, max_tokens=1))
    assert advance(scheduler) == [Output("full", (1,), "length")]


@pytest.mark.parametrize(
    ("sampling", "token_id", "reason"),
    [
        pytest.param({}, EOS, "stop", id="end-of-sequence"),
        pytest.param({"ignore_eos": True}, EOS, None, id="end-of-sequence-ignored"),
        pytest.param({"stop_token_ids": frozenset({3})}, 3, "stop", id="stop-token"),
        pytest.param({"max_tokens": 1}, 1, "length", id="max-tokens"),
        pytest.param({"max_tokens": 1}, EOS, "stop", id="end-of-sequence-as-last-token"),
        pytest.param({}, 1, None, id="goes-on"),
    ],
)
def test_a_token_ends_a_request(
    sampling: dict[str, object], token_id: int, reason: str | None
) -> None:
    scheduler = build_scheduler()
    scheduler.add(request("a", 3, **sampling))  # type: ignore[arg-type]
    assert advance(scheduler, token_id) == [Output("a", (token_id,), reason)]  # type: ignore[arg-type]
    assert scheduler.has_work == (reason is None)


def test_max_model_len_ends_a_request() -> None:
    scheduler = build_scheduler(max_num_batched_tokens=64)
    scheduler.add(request("a", 63))
    assert advance(scheduler) == [Output("a", (1,), "length")]


@pytest.mark.parametrize("num_steps", [0, 1, 3], ids=["waiting", "in-prefill", "in-decode"])
def test_an_abort_frees_the_blocks_and_is_reported_once(num_steps: int) -> None:
    scheduler = build_scheduler(max_num_batched_tokens=16)
    scheduler.add(request("a", 24))
    for _ in range(num_steps):
        advance(scheduler)
    scheduler.abort("a")
    scheduler.abort("a")
    assert scheduler.load_now().free_kv_tokens == 400
    assert advance(scheduler) == [Output("a", (), "abort")]
    assert not scheduler.has_work


def test_an_abort_of_an_unknown_request_is_no_error() -> None:
    scheduler = build_scheduler()
    scheduler.abort("nobody")
    assert not scheduler.has_work


def test_decodes_lie_together_and_by_length() -> None:
    scheduler = build_scheduler()
    for name, num_tokens in (("long", 7), ("short", 2)):
        scheduler.add(request(name, num_tokens))
    advance(scheduler)
    scheduler.add(request("new", 3))
    assert picked(scheduler.schedule()) == [("short", 2, 1), ("long", 7, 1), ("new", 0, 3)]


def test_the_fake_answers_depend_on_the_order_of_tokens() -> None:
    assert answer_alone([1, 2], 4) != answer_alone([2, 1], 4)
