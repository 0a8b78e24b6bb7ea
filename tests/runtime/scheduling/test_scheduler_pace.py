"""On a slow device a step computes as many tokens as fit into two seconds."""

from collections.abc import Callable

import pytest

from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Batch, Chunk, Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.pace import Pace
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import Sampled
from scheduler_play import request

LIMITS = Limits(max_num_seqs=8, max_num_batched_tokens=2_048, max_model_len=8_192)


def reading(num_computed: int) -> Request:
    """A request in the middle of its prompt."""
    asked = request(f"at-{num_computed}", 8_000)
    asked.num_computed_tokens = num_computed
    return asked


def pace_of(full_step_seconds: float) -> Pace:
    pace = Pace(LIMITS)
    pace.keep_under(2.0, full_step_seconds)
    return pace


@pytest.mark.parametrize(
    ("full_step_seconds", "num_computed", "num_tokens"),
    [
        pytest.param(0.5, 0, 2_048, id="fast"),
        pytest.param(6.0, 0, 846, id="slow"),
        pytest.param(6.0, 6_000, 216, id="slow-with-a-long-context"),
        pytest.param(500.0, 0, 18, id="very-slow"),
        pytest.param(1e9, 8_000, 9, id="a-few-at-least"),
        pytest.param(0.0, 0, 2_048, id="not-measured"),
    ],
)
def test_a_step_is_as_large_as_fits_the_time(
    full_step_seconds: float, num_computed: int, num_tokens: int
) -> None:
    assert pace_of(full_step_seconds).num_tokens_for([reading(num_computed)]) == num_tokens


def test_each_that_runs_gets_a_token_however_slow_the_device() -> None:
    assert pace_of(1e9).num_tokens_for([reading(place) for place in range(8)]) == 16


def test_where_steps_may_be_long_they_are_full() -> None:
    pace = Pace(LIMITS)
    pace.note_step((Chunk.of(reading(0), 0, 2_048),), 2_048, seconds=60.0)
    assert pace.num_tokens_for([reading(0)]) == 2_048


@pytest.mark.parametrize(
    ("num_tokens", "seconds", "changes"),
    [
        pytest.param(800, 3.0, "down", id="a-full-step-too-slow"),
        pytest.param(800, 0.5, "up", id="a-full-step-with-time-left"),
        pytest.param(20, 0.5, "not", id="a-small-step"),
        pytest.param(20, 3.0, "down", id="a-small-step-too-slow"),
        pytest.param(1, 9.0, "down", id="a-single-token-of-a-prompt-too-slow"),
    ],
)
def test_the_next_step_learns_from_the_last(num_tokens: int, seconds: float, changes: str) -> None:
    pace = pace_of(6.0)
    before = pace.num_tokens_for([reading(0)])
    pace.note_step((Chunk.of(reading(0), 0, num_tokens),), before, seconds)
    after = pace.num_tokens_for([reading(0)])
    assert changes == ("up" if after > before else "down" if after < before else "not")


def test_decodes_alone_say_nothing() -> None:
    pace = pace_of(6.0)
    decodes = tuple(Chunk(reading(place), place, 1, catches_up=True) for place in range(8))
    pace.note_step(decodes, 8, seconds=9.0)
    assert pace.num_tokens_for([reading(0)]) == 846


def test_a_lucky_step_does_not_make_the_next_one_far_too_large() -> None:
    pace, usual = pace_of(6.0), 846
    pace.note_step((Chunk.of(reading(0), 0, usual),), usual, seconds=1.5 / 9)
    allowed = pace.num_tokens_for([reading(0)])
    usual_work, work = usual * (1_000 + usual), allowed * (1_000 + allowed)
    assert 2 * usual_work < work < 4 * usual_work


@pytest.mark.parametrize("max_num_seqs", [1, 8, 256])
@pytest.mark.parametrize("num_tokens", [1, 20, 2_048])
def test_steps_grow_again_after_one_that_was_held_up(max_num_seqs: int, num_tokens: int) -> None:
    pace = Pace(Limits(max_num_seqs, 2_048, 8_192))
    pace.keep_under(2.0, 0.5)
    pace.note_step((Chunk.of(reading(0), 0, num_tokens),), 2_048, seconds=600.0)
    for _ in range(10):
        allowed = pace.num_tokens_for([reading(0)])
        pace.note_step((Chunk.of(reading(0), 0, allowed),), allowed, 0.05 + 0.0002 * allowed)
    assert pace.num_tokens_for([reading(0)]) == 2_048


def seconds_of_steps(scheduler: Scheduler, cost: Callable[[Batch], float]) -> list[float]:
    """Serve what waits on a device on which batches cost so many seconds."""
    seconds = []
    while scheduler.has_work:
        batch = scheduler.schedule()
        seconds.append(cost(batch))
        scheduler.settle(batch, Sampled((1,) * len(batch.sampled)), seconds[-1])
    return seconds


@pytest.mark.parametrize("token_keys", [500, 1_000, 3_000])
def test_every_step_of_a_6000_token_prompt_stays_under_two_seconds(token_keys: int) -> None:
    def cost(batch: Batch) -> float:
        return sum(c.num_tokens * (1 + c.end / token_keys) * 0.001 for c in batch.chunks)

    scheduler = Scheduler(BlockPool(1_000, 16), LIMITS, frozenset(), clock=lambda: 0.0)
    full = Batch((Chunk.of(reading(0), 0, 2_048),))
    scheduler.pace.keep_under(2.0, cost(full))
    scheduler.add(request("long", 6_000, max_tokens=1))
    seconds = seconds_of_steps(scheduler, cost)
    assert max(seconds) < 2.0
    assert sum(seconds) / len(seconds) > 1.0, "steps are not smaller than they need be"
