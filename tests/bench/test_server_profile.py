"""What a profile counts: our own functions that run, and no thread that waits."""

import json
import sys
import threading
from pathlib import Path
from types import FrameType

import profile_server
from serving.sampled import Sampler, path_of


def frame_within(module: str) -> FrameType:
    """A frame of a function of that module, called from this one."""
    scope: dict[str, object] = {"__name__": module, "frame": sys._getframe}
    exec("def outer():\n    return inner()\ndef inner():\n    return frame()", scope)
    found = scope["outer"]()  # type: ignore[operator]
    assert isinstance(found, FrameType)
    return found


def test_a_path_is_our_own_functions_the_innermost_last() -> None:
    assert path_of(frame_within("forebay_runtime.made")) == [
        "forebay_runtime.made.outer",
        "forebay_runtime.made.inner",
    ]


def test_what_others_run_for_us_ends_the_path() -> None:
    assert path_of(frame_within("elsewhere")) == ["elsewhere.inner"]


def test_a_thread_that_waits_is_not_counted() -> None:
    event = threading.Event()
    waiting = threading.Thread(target=event.wait)
    waiting.start()
    try:
        frame = sys._current_frames()[waiting.ident or 0]
        while frame.f_code.co_name != "wait":
            frame = sys._current_frames()[waiting.ident or 0]
        assert path_of(frame) == []
    finally:
        event.set()
        waiting.join()


def test_a_report_is_written_whole_and_read_as_shares(tmp_path: Path) -> None:
    sampler = Sampler()
    sampler.num_samples = 8
    sampler.counts.update({("engine", "forebay_runtime.a"): 4, ("MainThread", "b"): 1})
    report = tmp_path / "report.json"
    sampler.write(report)
    assert json.loads(report.read_text())["num_samples"] == 8
    assert profile_server.table_of(profile_server.read(report), 1)[2:] == [
        "| 50.0% | engine | runtime.a |"
    ]
    sampler.restart()
    assert (sampler.num_samples, len(sampler.counts)) == (0, 0)
