"""SIGTERM: newcomers are served, then turned away; what is in progress ends whole; nobody errs."""

import json
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
FOREVER = 3600.0
_NO_TLS = ssl.create_default_context()
"""Made once: reading the certificates costs each client more than its requests do."""
ENDLESS = {"prompt": "ab", "max_tokens": 4000, "stream": True}


def post(client: httpx.Client, max_tokens: int = 3, prompt: str = "abc") -> httpx.Response:
    return client.post("/v1/completions", json={"prompt": prompt, "max_tokens": max_tokens})


def connect(server: ServerProcess) -> httpx.Client:
    """A client that keeps one connection."""
    limits = httpx.Limits(max_connections=1, keepalive_expiry=FOREVER)
    return httpx.Client(base_url=server.url, timeout=60, limits=limits, verify=_NO_TLS)


class Stream:
    """A streamed completion on a kept-alive connection, read as far as the test wants."""

    def __init__(self, client: httpx.Client, **body: Any) -> None:
        request = client.build_request("POST", "/v1/completions", json=ENDLESS | body)
        self._response = client.send(request, stream=True)
        assert self._response.status_code == 200
        self._lines = (line for line in self._response.iter_lines() if line)
        self.first = next(self._lines)

    def rest(self) -> list[str]:
        """Everything that is left."""
        try:
            return list(self._lines)
        finally:
            self._response.close()


def text_of(lines: list[str]) -> str:
    events = [line.removeprefix("data: ") for line in lines]
    assert events[-1] == "[DONE]", events[-1]
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


def wait_for_line(server: ServerProcess, text: str) -> None:
    deadline = time.monotonic() + 60
    while not any(text in line for line in list(server.lines)):
        assert time.monotonic() < deadline, server.lines
        time.sleep(0.005)


def in_threads(work: list[Callable[[], None]]) -> list[BaseException]:
    """Do all at once; returns what they raised."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_no_request_fails_through_a_sigterm_and_the_lame_duck(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"max_num_seqs": 16}, lame_duck_seconds=FOREVER) as server:
        server.wait_ready()
        told = threading.Event()
        num_before = [0] * 8

        def use(number: int, keeps: bool) -> None:
            client, num_after = connect(server), 0
            try:
                while num_after < 40:
                    is_after = told.is_set()
                    response = post(client)
                    assert (response.status_code, response.json()["choices"][0]["text"]) == (
                        200,
                        "abc",
                    )
                    # What was asked after the signal says that its connection ends with it.
                    assert not is_after or response.headers["connection"] == "close"
                    num_after += is_after
                    num_before[number] += 1
                    if not keeps:
                        client.close()
                        client = connect(server)
            finally:
                client.close()

        def tell() -> None:
            while min(num_before) < 10:
                time.sleep(0.005)
            server.terminate()
            wait_for_line(server, "Received signal=SIGTERM")
            told.set()

        users = [lambda n=n: use(n, keeps=n % 2 == 0) for n in range(8)]
        assert in_threads([*users, tell]) == []
        assert server.get("/ready").status_code == 200
        server.signal(signal.SIGINT)
        assert server.wait() == 128 + signal.SIGINT


def test_openais_client_sees_nothing_of_a_lame_duck(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.001}, lame_duck_seconds=FOREVER) as server:
        server.wait_ready()
        with openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0) as client:
            ask = {"model": "fake", "prompt": "ab", "max_tokens": 200}
            stream = client.completions.create(**ask, stream=True)
            text = next(stream).choices[0].text
            server.terminate()
            wait_for_line(server, "Received signal=SIGTERM")
            text += "".join(chunk.choices[0].text for chunk in stream)
            assert text == "ab" * 100
            for _ in range(20):
                assert client.completions.create(**ask).choices[0].text == text


def test_streams_in_progress_end_whole_and_the_process_with_0(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.001, "max_num_seqs": 3}) as server:
        server.wait_ready()
        clients = [connect(server) for _ in range(6)]
        streams = [Stream(client, max_tokens=300) for client in clients[:3]]
        server.terminate()
        for stream in streams:
            assert text_of([stream.first, *stream.rest()]) == "ab" * 150
        assert server.wait() == 0
        for client in clients:
            client.close()


def test_a_request_that_waits_in_the_queue_is_served_too(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.001, "max_num_seqs": 1}) as server:
        server.wait_ready()
        answers: list[httpx.Response] = []

        def wait_in_line() -> None:
            with connect(server) as client:
                answers.append(post(client))

        with connect(server) as client:
            stream = Stream(client, max_tokens=500)
            waiting = threading.Thread(target=wait_in_line)
            waiting.start()
            while server.get("/load").json()["waiting"] != 1:
                time.sleep(0.005)
            server.terminate()
            assert text_of([stream.first, *stream.rest()]) == "ab" * 250
            waiting.join()
        assert [answer.status_code for answer in answers] == [200]
        assert answers[0].headers["connection"] == "close"
        assert server.wait() == 0


def test_newcomers_are_turned_away_after_the_lame_duck(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.01}) as server:
        server.wait_ready()
        with connect(server) as client:
            stream = Stream(client)
            server.terminate()
            wait_for_line(server, "Turned newcomers away")
            with connect(server) as newcomer:
                response = post(newcomer)
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "draining"
            assert response.headers["connection"] == "close"
            assert 1 <= int(response.headers["retry-after"]) <= 120
            assert server.get("/ready").status_code == 503
            assert server.get("/health").status_code == 200
            assert server.get("/load").json()["running"] == 1
            server.signal(signal.SIGTERM)
            assert server.wait() == 128 + signal.SIGTERM
            with pytest.raises(httpx.RemoteProtocolError):
                stream.rest()


def test_connections_that_were_told_nothing_serve_one_more_request(tmp_path: Path) -> None:
    # Their streams began before SIGTERM, so no header could say that the connection would end; and
    # their clients write the next request at the very moment the stream ends.
    with fake_server(tmp_path, {"max_num_seqs": 16, "step_seconds": 0.001}) as server:
        server.wait_ready()
        begun = threading.Barrier(9)
        responses: list[httpx.Response] = []

        def use(length: int) -> None:
            with connect(server) as client:
                stream = Stream(client, max_tokens=length)
                begun.wait()
                assert text_of([stream.first, *stream.rest()]) == "ab" * (length // 2)
                responses.append(post(client))

        def tell() -> None:
            begun.wait()
            server.terminate()

        users = [lambda n=n: use(600 + 100 * n) for n in range(8)]
        assert in_threads([*users, tell]) == []
        assert [response.status_code for response in responses] == [200] * 8
        assert {response.headers["connection"] for response in responses} == {"close"}
        assert server.wait() == 0


def test_idle_connections_are_closed_once_the_lame_duck_ends(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.01}) as server:
        server.wait_ready()
        with connect(server) as client, idle_connection(server) as idle, silent(server) as unused:
            stream = Stream(client)
            server.terminate()
            assert idle.recv(1) == b""
            assert unused.recv(1) == b""
            assert server.get("/load").json()["running"] == 1
            server.signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):
                stream.rest()


def silent(server: ServerProcess) -> socket.socket:
    """A connection that never said anything."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


REQUEST = (
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 31\r\n\r\n"
    b'{"prompt":"abc","max_tokens":3}'
)


def read_response(sock: socket.socket) -> tuple[bytes, bytes]:
    """One response, with a length, and no byte beyond it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, head
        head += byte
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    body = b""
    while len(body) < length:
        body += sock.recv(length - len(body))
    return head, body


def idle_connection(server: ServerProcess) -> socket.socket:
    """A kept-alive connection after its first response."""
    sock = silent(server)
    sock.sendall(REQUEST)
    head, _ = read_response(sock)
    assert b"connection: close" not in head
    return sock


def test_an_idle_connection_stays_usable_through_the_lame_duck(tmp_path: Path) -> None:
    with fake_server(tmp_path, lame_duck_seconds=FOREVER) as server:
        server.wait_ready()
        with idle_connection(server) as sock:
            server.terminate()
            wait_for_line(server, "Received signal=SIGTERM")
            sock.sendall(REQUEST)
            head, body = read_response(sock)
            assert head.startswith(b"HTTP/1.1 200 ") and b"connection: close" in head
            assert json.loads(body)["choices"][0]["text"] == "abc"
            assert sock.recv(1) == b""


def test_requests_sent_ahead_on_one_connection_are_all_answered(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.02}, lame_duck_seconds=FOREVER) as server:
        server.wait_ready()
        with silent(server) as sock:
            sock.sendall(REQUEST * 2)
            while server.get("/load").json()["running"] != 1:
                time.sleep(0.001)
            server.terminate()
            wait_for_line(server, "Received signal=SIGTERM")
            sock.sendall(REQUEST)
            heads = [read_response(sock)[0] for _ in range(3)]
            assert [b"connection: close" in head for head in heads] == [False, False, True]
            assert sock.recv(1) == b""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_is_left_at_the_timeout_gets_an_error(tmp_path: Path, stream: bool) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    with fake_server(tmp_path, {"step_seconds": 0.01}, shutdown_timeout=0.2) as server:
        server.wait_ready()
        with connect(server) as client:
            if stream:
                answer = Stream(client)
                server.terminate()
                last = json.loads(answer.rest()[-1].removeprefix("data: "))
            else:
                threading.Thread(target=tell_when_running, args=(server,)).start()
                response = post(client, max_tokens=4000)
                assert response.status_code == 503
                last = response.json()
            assert last["error"]["code"] == "shutdown"
        assert server.wait() == 0
        assert log.read_text() == "forebay serve: answers cut: 1"


def tell_when_running(server: ServerProcess) -> None:
    while server.get("/load").json()["running"] != 1:
        time.sleep(0.005)
    server.terminate()


def test_ctrl_c_drains_without_a_lame_duck(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"step_seconds": 0.001}, lame_duck_seconds=FOREVER) as server:
        server.wait_ready()
        with connect(server) as client:
            stream = Stream(client, max_tokens=300)
            server.signal(signal.SIGINT)
            assert text_of([stream.first, *stream.rest()]) == "ab" * 150
        assert server.wait() == 0


def test_a_full_queue_is_answered_429_with_retry_after(tmp_path: Path) -> None:
    engine = {"step_seconds": 0.02, "max_num_seqs": 1}
    with fake_server(tmp_path, engine, max_num_seqs=1, max_num_queued_reqs=0) as server:
        server.wait_ready()
        with connect(server) as client, connect(server) as other:
            stream = Stream(client, max_tokens=40)
            response = post(other)
            assert response.status_code == 429
            assert response.json()["error"]["code"] == "rate_limit_exceeded"
            assert 1 <= int(response.headers["retry-after"]) <= 120
            assert text_of([stream.first, *stream.rest()]) == "ab" * 20
            assert post(other).status_code == 200


def test_a_full_server_does_not_look_at_what_it_refuses(tmp_path: Path) -> None:
    engine = {"step_seconds": 0.02, "max_num_seqs": 1}
    with fake_server(tmp_path, engine, max_num_seqs=1, max_num_queued_reqs=0) as server:
        server.wait_ready()
        with connect(server) as client, connect(server) as other:
            stream = Stream(client, max_tokens=40)
            assert post(other, prompt="a" * 100_000).status_code == 429
            stream.rest()
            assert post(other, prompt="a" * 100_000).status_code == 400
