"""When an engine counts as stalled."""

import pytest

from forebay_runtime.request import Load, Output
from forebay_runtime.server.watchdog import Watchdog
from set_clock import SetClock

IDLE_STEP = Load(num_running=0, num_waiting=5, kv_cache_usage=1.0, free_kv_tokens=0)
BUSY_STEP = Load(1, 4, 1.0, 0, num_step_tokens=7)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def watchdog(clock: SetClock) -> Watchdog:
    return Watchdog(30.0, clock)


@pytest.mark.parametrize(("seconds", "is_stalled"), [(30.0, False), (30.1, True)])
def test_a_step_is_stuck_after_the_limit(
    watchdog: Watchdog, clock: SetClock, seconds: float, is_stalled: bool
) -> None:
    watchdog.begin_step()
    clock.now = seconds
    assert watchdog.is_stalled(has_work=False) is is_stalled
    watchdog.end_step()
    assert not watchdog.is_stalled(has_work=False)


@pytest.mark.parametrize(("slowest", "limit"), [(1.0, 30.0), (7.0, 70.0)], ids=["fast", "slow"])
def test_the_limit_is_ten_times_the_slowest_warm_step(
    watchdog: Watchdog, clock: SetClock, slowest: float, limit: float
) -> None:
    watchdog.learn(slowest)
    watchdog.begin_step()
    clock.now = limit
    assert not watchdog.is_stalled(has_work=True)
    clock.now = limit + 0.1
    assert watchdog.is_stalled(has_work=True)


def test_work_that_no_step_does_anything_of_is_a_stall(watchdog: Watchdog, clock: SetClock) -> None:
    watchdog.wake()
    for second in range(1, 32):
        clock.now = second
        watchdog.begin_step()
        watchdog.end_step()
        watchdog.see([], IDLE_STEP)
    assert watchdog.is_stalled(has_work=True)


def test_a_server_with_nothing_to_do_is_not_stalled(watchdog: Watchdog, clock: SetClock) -> None:
    clock.now = 1e6
    assert not watchdog.is_stalled(has_work=False)
    watchdog.wake()
    assert not watchdog.is_stalled(has_work=True)


@pytest.mark.parametrize(
    ("outputs", "load"),
    [
        ([], BUSY_STEP),
        ([Output("a", (1,))], IDLE_STEP),
        ([Output("a", finish_reason="abort")], IDLE_STEP),
    ],
    ids=["computed", "token", "end"],
)
def test_whatever_a_step_did_is_progress(
    watchdog: Watchdog, clock: SetClock, outputs: list[Output], load: Load
) -> None:
    clock.now = 31.0
    assert watchdog.is_stalled(has_work=True)
    watchdog.see(outputs, load)
    assert not watchdog.is_stalled(has_work=True)
