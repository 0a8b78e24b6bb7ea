"""A served model on two ranks: drains, deaths and hangs, as the pod's last words tell them."""

import os
import queue
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from forebay_runtime.config import StartError
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.parallel.messages import Build
from forebay_runtime.parallel.rank_loss import RankLost
from forebay_runtime.scheduling.batch import Limits
from rank_processes import find_ranks, hung, is_alive, wait_gone
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
def ranks(folder: Path, log: Path, num_ranks: int = 2) -> Iterator[tuple[ServerProcess, int]]:
    """A ready server, and the process id of the last of its ranks."""
    log.touch()
    limits = ["--max-model-len", "512", "--max-num-seqs", "2", "--max-num-batched-tokens", "16"]
    flags = ["--tensor-parallel-size", str(num_ranks), "--rank-timeout-seconds", "2", *limits]
    with running([*SERVE, str(folder), *FLAGS, *flags], log) as server:
        server.wait_ready()
        yield server, find_ranks(server.pid)[-1]


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
    with ranks(folder, tmp_path / "log") as (server, rank):
        with streaming(server) as lines:
            os.kill(rank, signal.SIGTERM)
            server.terminate()
            events = [line for line in lines if line.startswith("data: ")]
        assert events[-1] == "data: [DONE]"
        assert '"finish_reason":"length"' in "".join(events)
        assert server.wait() == 0
        wait_gone(rank)


@contextmanager
def sent(number: signal.Signals, rank: int) -> Iterator[None]:
    os.kill(rank, number)
    yield


KILLED, STOPPED = partial(sent, signal.SIGKILL), partial(sent, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("num_ranks", "lost", "reason"),
    [
        pytest.param(4, KILLED, "Rank 3 of 4 was ended by SIGKILL", id="killed"),
        pytest.param(2, STOPPED, "gave no sign of life", id="stopped"),
        pytest.param(2, hung, "lives, but does not finish its step", id="hung"),
    ],
)
def test_a_rank_that_is_lost_ends_the_pod_with_the_reason(
    folder: Path,
    tmp_path: Path,
    num_ranks: int,
    lost: Callable[[int], AbstractContextManager[None]],
    reason: str,
) -> None:
    """Of what ends with an error as another is gone nothing is said; who hangs may not let go."""
    log = tmp_path / "log"
    with ranks(folder, log, num_ranks) as (server, rank):
        with streaming(server) as lines, lost(rank):
            told = "".join(lines)
            assert server.wait() == 1
        assert '"type":"server_error"' in told and "[DONE]" not in told
        assert server.lines[-1].startswith(f"forebay serve: Rank {num_ranks - 1} of {num_ranks}")
        assert reason in server.lines[-1]
        assert log.read_text() == server.lines[-1]
        wait_gone(rank)


def test_the_error_of_a_rank_is_told_though_nobody_waits_for_its_answer() -> None:
    losses: queue.SimpleQueue[RankLost] = queue.SimpleQueue()
    followers = Followers(2, 60.0, losses.put)
    try:
        followers.begin_asking(Build(1, Limits(1, 1, 1)))
        assert str(losses.get(timeout=60)) == (
            "Rank 1 of 2: RuntimeError: this rank was told to go on before it was told to load"
        )
    finally:
        followers.close()


def test_a_rank_that_cannot_be_started_is_said_at_once() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StartError, match="Rank 1 of 2 could not be started: Too many open"):
            Followers(2, 60.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


LEADER = """
import sys
from forebay_runtime.parallel.followers import Followers
ranks = Followers(2, 60.0)
print(ranks.process_ids[0], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_no_rank_outlives_rank_0_and_nothing_is_left_behind(
    tmp_path: Path, is_stopped: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEADER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
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
    assert not list(tmp_path.iterdir())
