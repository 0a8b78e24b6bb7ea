"""HTTP itself: sizes, old versions, slow clients, and who is answered what before the API."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
MIB = 1024**2
LIMIT = 32 * MIB


def talk(server: ServerProcess, *parts: bytes) -> tuple[bytes, bytes]:
    """Head and body of everything that the server says until it closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        for part in parts:
            sock.sendall(part)
        head, _, body = sock.makefile("rb").read().partition(b"\r\n\r\n")
    return head.lower(), body


def post_head(path: str, num_bytes: int, *lines: str, version: str = "1.1") -> bytes:
    head = [f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {num_bytes}", *lines]
    return "\r\n".join([*head, "", ""]).encode()


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_client_that_sends_too_much_gets_to_read_the_refusal(
    server: ServerProcess, is_chunked: bool
) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * MIB

    content = chunks() if is_chunked else b" " * (40 * MIB)
    response = httpx.post(server.url + "/v1/completions", content=content, timeout=60)
    assert response.status_code == 413
    assert str(LIMIT) in response.json()["error"]["message"]


def test_a_body_of_the_largest_size_is_read(server: ServerProcess) -> None:
    body = b'{"prompt": "a", "max_tokens": 1, "user": "' + b"u" * (LIMIT - 44) + b'"}'
    assert len(body) == LIMIT
    assert httpx.post(server.url + "/v1/completions", content=body, timeout=60).is_success


def test_a_length_beyond_the_limit_is_refused_before_the_body_is_sent(
    server: ServerProcess,
) -> None:
    head = post_head("/v1/completions", LIMIT + 1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        sock.sendall(head)
        assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_asks_whether_to_send_too_much_is_told_not_to(server: ServerProcess) -> None:
    head, _ = talk(server, post_head("/v1/completions", LIMIT + 1, "Expect: 100-continue"))
    assert head.startswith(b"http/1.1 413 ")
    assert b"connection: close" in head


def test_a_client_that_asks_whether_to_send_is_told_to_go_on(server: ServerProcess) -> None:
    body = b'{"prompt": "a", "max_tokens": 1}'
    lines = ("Expect: 100-continue", "Connection: close")
    head, rest = talk(server, post_head("/v1/completions", len(body), *lines), body)
    assert head.startswith(b"http/1.1 100 ")
    assert rest.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("depth", [300, 1_000_000], ids=["deep", "very-deep"])
@pytest.mark.parametrize("opening", ["[", '{"a":'], ids=["lists", "objects"])
def test_json_that_nests_too_deeply_is_a_bad_request(
    server: ServerProcess, opening: str, depth: int
) -> None:
    body = '{"prompt": "a", "user": ' + opening * depth
    response = httpx.post(server.url + "/v1/completions", content=body, timeout=60)
    assert response.status_code == 400
    assert "JSON" in response.json()["error"]["message"]


def test_a_head_without_an_end_is_refused(server: ServerProcess) -> None:
    head, body = talk(server, b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000)
    assert head.startswith(b"http/1.1 431 ")
    assert "too long" in json.loads(body)["error"]["message"]


def test_a_stream_to_http_1_0_is_plain_and_ends_with_the_connection(server: ServerProcess) -> None:
    body = b'{"prompt": "ab", "max_tokens": 3, "stream": true}'
    head, events = talk(server, post_head("/v1/completions", len(body), version="1.0"), body)
    assert b"transfer-encoding" not in head
    lines = [line for line in events.split(b"\n") if line]
    assert all(line.startswith(b"data: ") for line in lines)
    assert lines[-1] == b"data: [DONE]"


def test_an_answer_to_http_1_0_is_whole(server: ServerProcess) -> None:
    head, body = talk(server, b"GET /v1/models HTTP/1.0\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["object"] == "list"


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/load", "/metrics", "/version", "/v1/models"]
)
def test_head_is_get_without_the_body(server: ServerProcess, path: str) -> None:
    head, body = talk(
        server, f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    assert head.startswith(b"http/1.1 200 ")
    assert body == b""


def test_head_where_there_is_only_post_is_refused(server: ServerProcess) -> None:
    assert httpx.head(server.url + "/v1/completions").status_code == 405


@pytest.mark.parametrize(
    "parts",
    [[b"GET /health HT"], [post_head("/v1/completions", 10), b"{"]],
    ids=["head", "body"],
)
def test_a_client_that_stops_halfway_is_told_that_time_is_up(
    tmp_path: Path, parts: list[bytes]
) -> None:
    with fake_server(tmp_path, head_seconds=0.2, body_seconds=0.2) as hasty:
        hasty.wait_ready()
        head, body = talk(hasty, *parts)
        assert head.startswith(b"http/1.1 408 ")
        assert json.loads(body)["error"]["message"]
        assert hasty.get("/health").is_success
