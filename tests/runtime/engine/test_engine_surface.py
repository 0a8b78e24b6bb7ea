"""What the server may ask of an engine, shown with a fake model."""

import time
from typing import Any

import pytest

from fake_runner import FakeRunner, FakeSampler, answer_alone
from forebay_runtime.engine import Engine, EngineLike, Warmth, Widths
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from scheduler_play import told


def build_engine(warmth: Warmth = Warmth()) -> Engine:  # noqa: B008
    scheduler = Scheduler(BlockPool(50, 4), Limits(4, 16, 32), frozenset({96}))
    return Engine(scheduler, FakeRunner(4), FakeSampler(), lambda: warmth, Widths(97, 8))


def request(prompt: list[int], name: str = "a") -> Request:
    return Request(name, prompt, SamplingParams(max_tokens=3, temperature=0, ignore_eos=True))


def test_an_engine_is_what_the_server_expects() -> None:
    engine: EngineLike = build_engine()
    assert (engine.max_model_len, engine.vocab_size, engine.eos_token_ids) == (32, 97, {96})


def test_a_step_gives_each_request_its_token() -> None:
    engine = build_engine()
    engine.add(request([1, 2], "a"))
    engine.add(request([3], "b"))
    first_a, first_b = answer_alone([1, 2], 1)[0], answer_alone([3], 1)[0]
    assert sorted(told(engine.step())) == [("a", (first_a,), None), ("b", (first_b,), None)]


def test_the_first_output_tells_when_a_request_was_scheduled_and_what_was_cached() -> None:
    engine = build_engine()
    before = time.monotonic()
    engine.add(request([1, 2]))
    first, second = engine.step() + engine.step()
    assert first.scheduled_at is not None and before <= first.scheduled_at <= time.monotonic()
    assert (first.num_cached_tokens, second.num_cached_tokens, second.scheduled_at) == (
        0,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"pooling": "mean"}, "stop", id="an-embedding"),
        pytest.param({"sampling": SamplingParams(0)}, "length", id="nothing-sampled"),
    ],
)
def test_a_prompt_that_asks_for_no_token_may_fill_the_model(
    more: dict[str, Any], reason: str
) -> None:
    engine = build_engine()
    fields: dict[str, Any] = {"sampling": SamplingParams(3), **more}
    engine.add(Request("a", [1] * 32, **fields))
    engine.step()
    assert told(engine.step()) == [("a", (), reason)]


def test_steps_that_would_be_slow_are_made_smaller_when_warm() -> None:
    engine = build_engine(Warmth(slowest_step_seconds=4.0, most_step_seconds=2.0))
    engine.warm_up()
    engine.add(request([1] * 20))
    assert (engine.step(), engine.load_now().num_step_tokens) == ([], 9)
    assert engine.slowest_warm_step_seconds == 4.0


def test_an_idle_engine_has_no_work_and_a_step_of_it_gives_nothing() -> None:
    engine = build_engine()
    assert not engine.has_work
    assert engine.step() == []


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        pytest.param([], "has 0 tokens; possible are 1 to 31", id="empty"),
        pytest.param([1] * 32, "has 32 tokens; possible are 1 to 31", id="too-long"),
        pytest.param([1, 97], "token ids outside 0 to 96", id="beyond-the-vocabulary"),
        pytest.param([-1], "token ids outside 0 to 96", id="negative"),
    ],
)
def test_a_prompt_that_can_never_run_is_refused(prompt: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        build_engine().add(request(prompt))


def test_an_id_in_use_is_refused() -> None:
    engine = build_engine()
    engine.add(request([1]))
    with pytest.raises(ValueError, match="a is in use"):
        engine.add(request([2]))


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", -1), ("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("top_k", -1)],
)
def test_sampling_that_means_nothing_is_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{"max_tokens": 1, field: value})  # type: ignore[arg-type]


def test_tokens_are_read_across_the_border_of_prompt_and_output() -> None:
    asked = request([1, 2, 3])
    asked.output_token_ids = [4, 5]
    assert [asked.token_ids(*span) for span in ((0, 2), (2, 4), (3, 5), (4, 5))] == [
        [1, 2],
        [3, 4],
        [4, 5],
        [5],
    ]
