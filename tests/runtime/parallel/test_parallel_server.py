"""A served model on two ranks: drains, deaths and hangs, as the pod's last words tell them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rank_processes import find_ranks, is_alive, wait_gone
from served_model import FLAGS, SERVE, save_served_model
from server_process import ServerProcess, running

pytestmark = pytest.mark.component

LONG: dict[str, Any] = {"prompt": "ab", "max_tokens": 400, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    save_served_model(made)
    return made


@contextmanager
def two_ranks(folder: Path, log: Path) -> Iterator[tuple[ServerProcess, int]]:
    """A ready server, and the process id of its other rank."""
    log.touch()
    limits = ["--max-model-len", "512", "--max-num-seqs", "2", "--max-num-batched-tokens", "16"]
    flags = ["--tensor-parallel-size", "2", "--rank-timeout-seconds", "2", *limits]
    with running([*SERVE, str(folder), *FLAGS, *flags], log) as server:
        server.wait_ready()
        [rank] = find_ranks(server.pid)
        yield server, rank


@contextmanager
def streaming(server: ServerProcess) -> Iterator[Iterator[str]]:
    """The lines of an answer that has begun."""
    with (
        httpx.Client(base_url=server.url, timeout=120) as client,
        client.stream("POST", "/v1/completions", json=LONG) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        yield lines


def test_a_drain_ends_what_was_begun_though_every_rank_is_told_to_go(
    folder: Path, tmp_path: Path
) -> None:
    with two_ranks(folder, tmp_path / "log") as (server, rank):
        with streaming(server) as lines:
            os.kill(rank, signal.SIGTERM)
            server.terminate()
            events = [line for line in lines if line.startswith("data: ")]
        assert events[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in "".join(events)
        assert server.wait() == 0
        wait_gone(rank)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        pytest.param(signal.SIGKILL, "was ended by SIGKILL", id="killed"),
        pytest.param(signal.SIGSTOP, "gave no sign of life", id="stopped"),
    ],
)
def test_a_rank_that_is_lost_ends_the_pod_with_the_reason(
    folder: Path, tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    log = tmp_path / "log"
    with two_ranks(folder, log) as (server, rank):
        with streaming(server) as lines:
            os.kill(rank, number)
            told = "".join(lines)
        assert '"type":"server_error"' in told and "[DONE]" not in told
        assert server.wait() == 1
        assert server.lines[-1].startswith("forebay serve: Rank 1 of 2")
        assert reason in server.lines[-1]
        assert log.read_text() == server.lines[-1]
        wait_gone(rank)


LEADER = """
import sys
from forebay_runtime.parallel.followers import Followers
ranks = Followers(2, 60.0)
print(ranks.process_ids[0], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_no_rank_outlives_rank_0(is_stopped: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as leader:
        assert leader.stdout is not None
        rank = int(leader.stdout.readline())
        while len(os.listdir(f"/proc/{rank}/task")) < 2:
            pass  # its sign of life comes from a thread, and what ties it to rank 0 is before that
        if is_stopped:
            os.kill(rank, signal.SIGSTOP)
        assert is_alive(rank)
        leader.kill()
    wait_gone(rank)
