"""The load client and the rounds against our own small server, through HTTP and processes."""

import os
import signal
import sys
from pathlib import Path

import pytest
from serving.case import Case
from serving.process_tree import is_running, rss_bytes, signal_tree, tree_of
from serving.rounds import Effort, Group, Measured, line_of, measure, run_case
from serving.server import Recipe, Server, ServerError

from served_model import SERVE, save_served_model

CASE = Case("tiny", 2, 5, prompt_tokens=12, output_tokens=6, shared_tokens=8)
FLAGS = ["--host", "127.0.0.1", "--port", "PORT", "--device", "cpu", "--lame-duck-seconds", "0"]
FLAGS += ["--served-model-name", "measured", "--kv-cache-memory-bytes", str(2**20)]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("served")
    save_served_model(folder)
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1"}
    command = (*SERVE, str(folder), *FLAGS)
    return Recipe("us", "Forebay", "float32", command, environment, "/ready")


@pytest.fixture(scope="module")
def measured(recipe: Recipe) -> Measured:
    effort = Effort(num_rounds=2, num_starts=1, num_tries=1)
    return measure(Group("g", [recipe], [CASE]), effort, lambda line: None)


@pytest.mark.component
def test_every_round_is_answered_whole_and_counted_by_the_server(measured: Measured) -> None:
    samples = measured.samples["us"]["tiny"]
    assert len(samples) == 2
    for sample in samples:
        assert (sample["num_errors"], sample["num_short"]) == (0, 0)
        assert sample["output_tokens_per_s"] * sample["seconds"] == pytest.approx(30)
        assert sample["prompt_tokens"] > 20
        assert 0 < sample["ttft_p50_ms"] <= sample["latency_p50_ms"]


@pytest.mark.component
def test_a_round_finds_the_shared_prompt_that_its_first_request_left(measured: Measured) -> None:
    assert all(sample["cached_tokens"] > 0 for sample in measured.samples["us"]["tiny"])


@pytest.mark.component
def test_memory_and_seconds_to_ready_are_those_of_a_real_process(measured: Measured) -> None:
    assert len(measured.ready_seconds["us"]) == 1
    for sample in measured.samples["us"]["tiny"]:
        assert 50 * 2**20 < sample["pss_bytes"] <= 1.05 * sample["peak_rss_bytes"]


def test_a_server_that_refuses_what_it_is_asked_has_a_rate_of_nothing(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "http.server", "PORT", "--bind", "127.0.0.1")
    server = Server(Recipe("files", "", "", command, ready_path="/"), tmp_path / "log")
    try:
        server.wait_ready()
        sample = run_case(server, CASE, "0")
    finally:
        server.end()
    assert (sample["output_tokens_per_s"], sample["num_errors"]) == (0, 6)
    assert "HTTP 501" in sample["first_error"]
    assert "6 ERRORS" in line_of(sample)


def test_a_peer_that_does_not_start_is_left_out_with_its_reason() -> None:
    broken = Recipe("broken", "", "", (sys.executable, "-c", "raise SystemExit('no wheel')"))
    said: list[str] = []
    measured = measure(Group("g", [broken], [CASE]), Effort(num_rounds=1), said.append)
    assert (measured.ready_seconds, measured.samples) == ({}, {})
    assert said == ["Left out: broken was never ready:\nno wheel\n"]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_paused_server_stands_still_with_all_that_it_started(tmp_path: Path) -> None:
    started = "import os, time; os.fork(); time.sleep(600)"
    command = (sys.executable, "-c", started)
    server = Server(Recipe("two", "", "", command), tmp_path / "log")
    try:
        while len(tree := tree_of(server.pid)) < 2:
            pass
        server.pause()
        while any(state(pid) != "T" for pid in tree):
            pass
        server.resume()
        while any(state(pid) == "T" for pid in tree):
            pass
        assert rss_bytes(tree) > rss_bytes(tree[:1]) > 0
    finally:
        server.end()
    assert not any(is_running(pid) for pid in tree)


def test_a_server_that_ends_before_it_is_ready_says_so_with_its_log(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no such model')")
    server = Server(Recipe("broken", "", "", command), tmp_path / "log")
    with pytest.raises(ServerError, match="broken was never ready:\nno such model"):
        server.wait_ready()
    server.end()


def test_signals_to_what_is_gone_are_no_error() -> None:
    signal_tree([2**22 + 1], signal.SIGCONT)
    assert rss_bytes([2**22 + 1]) == 0
