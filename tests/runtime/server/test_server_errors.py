"""Errors have OpenAI's shape wherever they arise, and one client's never reach another."""

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from api_client import error_of
from server_process import ServerProcess, fake_server

pytestmark = pytest.mark.component
CHAT = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with fake_server(tmp_path_factory.mktemp("server"), {"max_model_len": 64}) as server:
        server.wait_ready()
        yield server


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nothing", None, 404, None),
        ("POST", "/v1/nothing", {}, 404, None),
        ("POST", "/v1/embeddings", {}, 400, None),
        ("GET", "/v1/models/", None, 404, "model_not_found"),
        ("GET", "/v1/completions", None, 405, None),
        ("POST", "/health", None, 405, None),
        ("GET", "/v1/models/other", None, 404, "model_not_found"),
        ("POST", "/v1/completions", {"model": "gpt-4", "prompt": "a"}, 404, "model_not_found"),
        ("POST", "/v1/chat/completions", {"model": "x", "messages": CHAT}, 404, "model_not_found"),
        ("POST", "/v1/completions", {"prompt": ""}, 400, None),
        ("POST", "/v1/completions", {"prompt": [261]}, 400, None),
        ("POST", "/v1/completions", {"prompt": [-1]}, 400, None),
        ("POST", "/v1/completions", {"prompt": "a" * 64}, 400, "context_length_exceeded"),
        ("POST", "/v1/completions", {"prompt": ["a", "b" * 99]}, 400, "context_length_exceeded"),
        (
            "POST",
            "/v1/completions",
            {"prompt": "a", "max_tokens": 64},
            400,
            "context_length_exceeded",
        ),
        ("POST", "/v1/completions", {"prompt": "<|refuse|>"}, 400, None),
        ("POST", "/v1/completions", {"prompt": "<|refuse|>", "stream": True}, 400, None),
        ("POST", "/v1/completions", {"prompt": "a", "best_of": 3}, 400, "unsupported_parameter"),
        ("POST", "/v1/chat/completions", {"messages": [{"role": "cat"}]}, 400, None),
        ("POST", "/tokenize", {}, 400, None),
        ("POST", "/tokenize", {"prompt": "a", "messages": CHAT}, 400, None),
        ("POST", "/detokenize", {"tokens": [99999]}, 400, None),
    ],
    ids=lambda value: str(value)[:50] if not isinstance(value, int) else "",
)
def test_an_error_says_what_is_wrong_in_openais_shape(
    server: ServerProcess, method: str, path: str, body: Any, status: int, code: str | None
) -> None:
    response = httpx.request(method, server.url + path, json=body, timeout=60)
    error = error_of(response)
    assert response.status_code == status, error
    assert error["code"] == code


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ({"prompt": "a" * 70}, ("64", "70")),
        ({"prompt": "a" * 60, "max_tokens": 10}, ("64", "70", "60", "10")),
        ({"prompt": "a" * 4_000_000}, ("64", "333333")),
    ],
    ids=["prompt", "answer", "far-too-long-to-count"],
)
def test_too_long_is_told_with_all_numbers(
    server: ServerProcess, body: dict[str, Any], numbers: tuple[str, ...]
) -> None:
    message = error_of(httpx.post(server.url + "/v1/completions", json=body))["message"]
    assert all(number in message for number in numbers), message


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "image_url"),
        ({"role": "user", "content": [{"text": "no type"}]}, "messages.0.content.0"),
        ({"role": "user", "content": 5}, "messages.0.content"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "messages.0.tool_calls"),
        ({"role": "cat", "content": "meow"}, "Cats cannot talk"),
    ],
    ids=["image", "no-type", "number", "tool-calls", "template-refuses"],
)
def test_a_message_that_cannot_be_read_is_refused_by_name(
    server: ServerProcess, message: dict[str, Any], named: str
) -> None:
    response = httpx.post(server.url + "/v1/chat/completions", json={"messages": [message]})
    assert response.status_code == 400
    assert named in error_of(response)["message"]


def test_a_model_without_a_chat_template_says_what_to_do(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with fake_server(tmp_path_factory.mktemp("bare"), {"template": None}) as bare:
        bare.wait_ready()
        response = httpx.post(bare.url + "/v1/chat/completions", json={"messages": CHAT})
        assert response.status_code == 400
        assert "/v1/completions" in error_of(response)["message"]
        assert httpx.post(bare.url + "/v1/completions", json={"prompt": "a"}).status_code == 200


def test_openais_client_raises_its_own_exceptions(server: ServerProcess) -> None:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.completions.create(model="gpt-4", prompt="a")
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as unsupported:
            client.completions.create(model="fake", prompt="a", best_of=2)
        assert unsupported.value.param == "best_of"


def test_what_is_no_http_gets_an_error_too(server: ServerProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"HELLO WORLD\r\n\r\n")
        answer = sock.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_one_clients_bad_requests_do_not_touch_anothers_stream(server: ServerProcess) -> None:
    bad = [b"{", b'{"prompt": []}', b'{"prompt": "<|refuse|>"}', b'{"prompt": [-5]}', b"\xff\xfe"]
    statuses: list[int] = []

    def misbehave() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for content in bad * 5:
                statuses.append(client.post("/v1/completions", content=content).status_code)

    body = {"prompt": "abc", "max_tokens": 60}
    expected = httpx.post(server.url + "/v1/completions", json=body).json()["choices"][0]["text"]
    threads = [threading.Thread(target=misbehave) for _ in range(3)]
    for thread in threads:
        thread.start()
    texts = set()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        while any(thread.is_alive() for thread in threads):
            response = client.post("/v1/completions", json=body)
            texts.add(response.json()["choices"][0]["text"])
    for thread in threads:
        thread.join()
    assert texts == {expected}
    assert set(statuses) == {400}
