"""A wall clock that is set: what is remembered moves with it."""

from datetime import UTC, datetime, timedelta

import pytest

from forebay_operator.observed import ScalingMemory
from forebay_operator.wall_clock import NO_JUMP, JumpWatch, shift
from set_clock import SetClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        pytest.param(MINUTE, NO_JUMP, id="a minute that passes on both clocks is no jump"),
        pytest.param(MINUTE + timedelta(seconds=1), NO_JUMP, id="a slewed clock does not jump"),
        pytest.param(MINUTE + HOUR, HOUR, id="an hour ahead"),
        pytest.param(MINUTE - HOUR, -HOUR, id="an hour back"),
    ],
)
def test_a_jump_is_what_the_monotonic_clock_does_not_know(
    wall: timedelta, expected: timedelta
) -> None:
    clock = SetClock(1000.0)
    watch = JumpWatch(clock)
    assert watch.look(NOW) == NO_JUMP
    clock.now += 60
    assert watch.look(NOW + wall) == expected
    assert watch.look(NOW + wall) == NO_JUMP


def test_what_is_remembered_moves_and_what_is_not_known_stays_unknown() -> None:
    memory = ScalingMemory(NOW, idle_since=NOW + MINUTE, startup_seconds=7.0)
    expected = ScalingMemory(NOW - HOUR, idle_since=NOW + MINUTE - HOUR, startup_seconds=7.0)
    assert shift(memory, -HOUR) == expected
