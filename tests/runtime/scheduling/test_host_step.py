"""What a step costs the host: a few calls for each that runs, none for those that wait."""

import importlib.util
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from forebay_runtime.runner.step_inputs import describe_step
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import Sampled

SCRIPT = Path(__file__).resolve().parents[3] / "bench/host_step.py"
_spec = importlib.util.spec_from_file_location("host_step", SCRIPT)
assert _spec is not None and _spec.loader is not None
host_step: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(host_step)


class Steps:
    """Decode steps of a scheduler, one in flight."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.flying = Batch(())

    def take(self) -> None:
        batch = self.scheduler.schedule()
        describe_step(batch, 16)
        self.scheduler.settle(self.flying, Sampled((1,) * len(self.flying.sampled)))
        self.flying = batch

    def count_calls(self) -> int:
        """The calls of Python functions in one step."""
        num_calls = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal num_calls
            num_calls += event == "call"

        sys.setprofile(count)
        try:
            self.take()
        finally:
            sys.setprofile(None)
        return num_calls


def count_calls(num_seqs: int, num_waiting: int) -> list[int]:
    """Of steps that cross a block's border for each request once."""
    steps = Steps(host_step.build_scheduler(num_seqs, num_waiting, 40, num_steps=30))
    for _ in range(4):
        steps.take()
    return [steps.count_calls() for _ in range(16)]


def test_a_step_calls_a_bounded_number_of_functions_for_each_that_runs() -> None:
    few, many = count_calls(8, 0), count_calls(64, 0)
    assert sum(many) - sum(few) < 26 * (64 - 8) * len(many)


def test_a_step_costs_the_same_however_many_wait() -> None:
    assert count_calls(8, 5_000) == count_calls(8, 1)


def test_the_script_that_times_a_step_prints_a_row_for_each_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--num-seqs", "1", "3", "--num-waiting", "0", "2", "--steps", "3"]
    monkeypatch.setattr(sys, "argv", ["host_step.py", *flags])
    host_step.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1:3] for row in rows] == [
        [" 1 ", " 0 "],
        [" 1 ", " 2 "],
        [" 3 ", " 0 "],
        [" 3 ", " 2 "],
    ]
