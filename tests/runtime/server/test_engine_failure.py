"""When the engine fails, hangs or never starts: who is told, and how the process ends."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from server_process import fake_server

pytestmark = pytest.mark.component


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_broken_engine_ends_answers_with_an_error_and_the_process_with_its_cause(
    tmp_path: Path, stream: bool
) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.002}) as server:
        server.wait_ready()
        body = {"prompt": "ab", "max_tokens": 4000, "stream": stream}
        with httpx.Client(base_url=server.url, timeout=60) as client:
            request = client.build_request("POST", "/v1/completions", json=body)
            if stream:
                response = client.send(request, stream=True)
                lines = response.iter_lines()
                next(lines)
                broken = httpx.post(server.url + "/v1/completions", json={"prompt": "<|boom|>"})
                events = [line for line in lines if line.startswith("data: ")]
                error = json.loads(events[-1].removeprefix("data: "))["error"]
                assert "data: [DONE]" not in events
            else:
                broken = httpx.post(server.url + "/v1/completions", json={"prompt": "<|boom|>"})
                error = broken.json()["error"]
            assert broken.status_code == 500
            assert error["type"] == "server_error"
        assert server.wait() == 1
        last = "forebay serve: RuntimeError: the fake engine was told to break"
        assert server.lines[-1] == last


def test_an_engine_that_dies_leaves_nobody_without_an_answer(tmp_path: Path) -> None:
    long = {"max_tokens": 4000, "ignore_eos": True}
    chat = {"messages": [{"role": "user", "content": "ab"}], "n": 2} | long
    asked = [
        ("/v1/completions", {"prompt": "ab", "n": 3} | long),
        ("/v1/completions", {"prompt": ["a", "b"]} | long),
        ("/v1/chat/completions", chat),
    ]
    with (
        fake_server(tmp_path, {"step_seconds": 0.01, "max_num_seqs": 8}) as server,
        ThreadPoolExecutor(len(asked)) as pool,
    ):
        server.wait_ready()

        def ask(path: str, body: dict[str, Any]) -> int:
            return httpx.post(server.url + path, json=body, timeout=60).status_code

        answers = [pool.submit(ask, *each) for each in asked]
        while server.get("/load").json()["running"] < 7:
            pass
        assert ask("/v1/embeddings", {"input": "<|boom|>"}) == 500
        assert [answer.result() for answer in answers] == [500] * len(asked)
        assert server.wait() == 1


def test_liveness_fails_once_the_engine_hangs_and_sigterm_then_ends_it(tmp_path: Path) -> None:
    with fake_server(tmp_path, min_stall_seconds=0.05, shutdown_timeout=600.0) as server:
        server.wait_ready()
        body = {"prompt": "<|hang|>", "stream": True}
        with (
            httpx.Client(base_url=server.url, timeout=60) as client,
            client.stream("POST", "/v1/completions", json=body) as response,
        ):
            lines = response.iter_lines()
            server.wait_status("/health", 503)
            server.terminate()
            assert '"code":"shutdown"' in "".join(lines)
        assert server.wait() == 1


def test_a_start_that_fails_says_why_in_its_last_line_and_to_kubernetes(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    with fake_server(tmp_path, {"warm_up_error": "nothing\n  works"}) as server:
        assert server.wait() == 1
        assert server.lines[-1] == "forebay serve: RuntimeError: nothing works"
        assert log.read_text() == server.lines[-1]


def test_no_termination_log_is_made_where_kubernetes_made_none(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"warm_up_error": "nothing works"}) as server:
        assert server.wait() == 1
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with fake_server(tmp_path) as first, fake_server(tmp_path, port=first.port) as second:
        assert second.wait() == 1
        assert second.lines == [
            f"forebay serve: cannot listen on 127.0.0.1:{first.port}: Address already in use"
        ]


def test_before_it_is_ready_the_server_answers_503_with_retry_after(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"load_seconds": 600}) as server:
        assert server.get("/ready").status_code == 503
        assert server.get("/health").status_code == 200
        assert server.get("/load").json()["running"] == 0
        metrics = server.get("/metrics").text
        assert 'vllm:num_requests_waiting{engine="0",model_name="fake"} 0.0' in metrics
        response = httpx.post(server.url + "/v1/completions", json={"prompt": "a"})
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "loading"
        assert 1 <= int(response.headers["retry-after"]) <= 120
        server.terminate()
        assert server.wait() == 0
