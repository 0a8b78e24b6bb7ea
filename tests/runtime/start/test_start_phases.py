"""A start is told phase by phase: what each took of time and memory."""

import logging

import pytest

from forebay_runtime.start.phases import Phase, Start

GIB = 1024**3


class FakeMeter:
    """Memory and time as a test sets them."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self.now = 0.0

    def pass_by(self, seconds: float, num_bytes: int) -> None:
        self.now += seconds
        self.used_bytes += num_bytes

    def start(self) -> Start:
        return Start(lambda: self.used_bytes, lambda: self.now)


def test_phases_have_their_seconds_and_bytes() -> None:
    meter = FakeMeter()
    start = meter.start()
    for phase, seconds, num_bytes in (
        (Phase.CONTEXT, 1.5, GIB // 2),
        (Phase.WEIGHTS, 20.0, 15 * GIB),
        (Phase.TRIAL, 3.0, 0),
    ):
        with start.phase(phase):
            meter.pass_by(seconds, num_bytes)
    assert start.seconds == {"context": 1.5, "weights": 20.0, "trial": 3.0}
    assert start.taken_bytes == {"context": GIB // 2, "weights": 15 * GIB, "trial": 0}


def test_what_lies_between_phases_is_no_phases() -> None:
    meter = FakeMeter()
    start = meter.start()
    meter.pass_by(9.0, GIB)
    with start.phase(Phase.KV_CACHE):
        meter.pass_by(1.0, 2 * GIB)
    assert (start.seconds, start.taken_bytes) == ({"kv_cache": 1.0}, {"kv_cache": 2 * GIB})


def test_a_phase_that_is_entered_again_adds_up() -> None:
    meter = FakeMeter()
    start = meter.start()
    for _ in range(2):
        with start.phase(Phase.GRAPHS):
            meter.pass_by(2.0, GIB)
    assert (start.seconds["graphs"], start.taken_bytes["graphs"]) == (4.0, 2 * GIB)


def test_a_phase_that_fails_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    start = FakeMeter().start()
    with caplog.at_level(logging.INFO), pytest.raises(ValueError), start.phase(Phase.WEIGHTS):
        raise ValueError("no such file")
    assert (start.seconds, caplog.messages) == ({}, [])


def test_the_log_tells_each_phase_also_one_that_gave_memory_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    meter = FakeMeter()
    with caplog.at_level(logging.INFO), meter.start().phase(Phase.TRIAL):
        meter.pass_by(0.25, -2 * GIB)
    assert caplog.messages == [
        "Went through a phase of the start phase=trial seconds=0.25 took=-2.0 GiB"
    ]
