"""An operator whose wall clock is set by an hour, there and back."""

from pathlib import Path

import pytest

from faulted_stage import Stage
from operator_process import wait_until

pytestmark = pytest.mark.component


@pytest.mark.parametrize("seconds", [3600, -3600], ids=["ahead", "back"])
def test_a_clock_that_jumps_changes_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    monkeypatch.setenv("FOREBAY_TEST_CLOCK", str(clock))
    with stage.start() as operator:
        stage.apply()
        wait_until("A Job", lambda: stage.node.list("jobs"))
        set_clock(clock, seconds)
        stage.wait_ready()
        stage.expect_undisturbed()
        stage.kubectl("delete", "deployment/smollm2")
        set_clock(clock, 0)
        stage.expect_undisturbed()
        assert "Wall clock was set" in operator.log


def set_clock(clock: Path, seconds: int) -> None:
    """Move the operator's clock; it reads at any time, so the file is never there half-written."""
    written = clock.with_suffix(".new")
    written.write_text(str(seconds))
    written.replace(clock)
