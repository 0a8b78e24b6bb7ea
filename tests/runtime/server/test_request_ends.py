"""However a request ends: its client hears of it, and nothing of it stays in the gauges."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from server_metrics import read_metrics
from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
PROMPT = {"prompt": "ab", "max_tokens": 4000}
CHAT = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4000}
IDLE = {"running": 0, "waiting": 0, "kvCacheUsage": 0.0, "freeKvTokens": 65_536}
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two seats, and answers that take for ever."""
    engine = {"step_seconds": 0.005, "max_num_seqs": 2}
    with fake_server(tmp_path_factory.mktemp("ends"), engine) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def changes(server: ServerProcess) -> Callable[[], dict[str, float]]:
    """Wait until the server holds nothing; what its metrics counted since the test began."""
    before = await_idle(server)
    return lambda: {
        name: value - before.get(name, 0.0) for name, value in await_idle(server).items()
    }


def post(server: ServerProcess, path: str = "/v1/completions", **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=PROMPT | body, timeout=60)


def metrics_of(server: ServerProcess) -> dict[str, float]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        return read_metrics(http)


def await_idle(server: ServerProcess) -> dict[str, float]:
    """Wait until the server holds nothing; its metrics then."""
    while not IDLE.items() <= server.get("/load").json().items():
        pass
    metrics = metrics_of(server)
    assert [metrics[name] for name in GAUGES] == [0, 0, 0]
    return metrics


def send(server: ServerProcess, **body: Any) -> socket.socket:
    """Ask, and stay connected."""
    content = json.dumps(PROMPT | body).encode()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    sock.sendall(head % len(content) + content)
    return sock


def until_load(server: ServerProcess, **expected: int) -> None:
    while not expected.items() <= server.get("/load").json().items():
        pass


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_storm_of_clients_that_leave_freezes_no_gauge(
    server: ServerProcess, changes: Callable[[], dict[str, float]], stream: bool
) -> None:
    clients = [send(server, stream=stream, n=n) for n in (1, 2, 1, 3)]
    until_load(server, running=2, waiting=5)
    for client in clients:
        client.close()
    assert changes()['vllm:request_success_total{finished_reason="abort"}'] == 7


@pytest.mark.parametrize("n", [1, 3])
def test_a_request_that_runs_out_of_time_is_answered_408(
    server: ServerProcess, changes: Callable[[], dict[str, float]], n: int
) -> None:
    response = post(server, timeout=0.1, n=n)
    assert response.status_code == 408
    error = response.json()["error"]
    assert (error["code"], error["type"]) == ("timeout", "timeout_error")
    assert "0.1 seconds" in error["message"]
    metrics = changes()
    assert metrics['forebay:errors_total{kind="timeout"}'] == 1
    assert sum(v for k, v in metrics.items() if k.startswith("forebay:timeouts_total")) == n


def test_a_request_that_waits_in_the_queue_runs_out_of_time_too(
    server: ServerProcess, changes: Callable[[], dict[str, float]]
) -> None:
    holders = [send(server) for _ in range(2)]
    until_load(server, running=2)
    assert post(server, timeout=0.1).status_code == 408
    for holder in holders:
        holder.close()
    assert changes()['forebay:timeouts_total{kind="waiting"}'] == 1


def test_a_stream_that_runs_out_of_time_ends_with_the_error(
    server: ServerProcess, changes: Callable[[], dict[str, float]]
) -> None:
    response = post(server, timeout=0.1, stream=True)
    assert response.status_code == 200
    last = response.text.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
    metrics = changes()
    assert metrics['forebay:errors_total{kind="timeout"}'] == 1
    assert metrics['forebay:timeouts_total{kind="answering"}'] == 1


def test_the_servers_own_limit_ends_requests_that_ask_for_longer(tmp_path: Path) -> None:
    engine = {"step_seconds": 0.005}
    with fake_server(tmp_path, engine, max_request_seconds=0.1) as server:
        server.wait_ready()
        for body in ({}, {"timeout": 60}):
            assert "0.1 seconds" in post(server, **body).json()["error"]["message"]
        await_idle(server)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stream_that_waits_says_comments_and_then_its_answer(tmp_path: Path, path: str) -> None:
    engine = {"step_seconds": 0.005, "max_num_seqs": 1}
    with fake_server(tmp_path, engine, keep_alive_seconds=0.05) as server:
        server.wait_ready()
        holder = send(server)
        until_load(server, running=1)
        body = (PROMPT if path == "/v1/completions" else CHAT) | {"max_tokens": 3, "stream": True}
        with httpx.stream("POST", server.url + path, json=body, timeout=60) as response:
            lines = (line for line in response.iter_lines() if line)
            first = next(line for line in lines if not line.startswith("data: "))
            holder.close()
            rest = [line for line in lines if line != first]
        assert first == ": keep-alive"
        assert rest[-1] == "data: [DONE]"


def test_work_that_never_begins_turns_health_503(tmp_path: Path) -> None:
    engine = {"max_num_seqs": 0, "step_seconds": 0.01}
    with fake_server(tmp_path, engine, min_stall_seconds=0.2) as server:
        server.wait_ready()
        waiting = send(server)
        server.wait_status("/health", 503)
        assert server.get("/load").json()["waiting"] == 1
        waiting.close()
        server.wait_status("/health", 200)
