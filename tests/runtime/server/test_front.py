"""The outermost layer catches whatever breaks below it."""

import json

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay_runtime.server.front import Front
from forebay_runtime.server.lifecycle import Lifecycle
from forebay_runtime.server.options import ServeOptions

SCOPE = {"type": "http", "method": "POST", "path": "/v1/completions", "state": {}, "headers": []}


async def serve(app: ASGIApp, *received: Message) -> list[Message]:
    """What a ready server sends when app serves what was received."""
    lifecycle = Lifecycle(ServeOptions("fake"))
    lifecycle.become_ready()
    sent: list[Message] = []
    waiting = list(received)

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await Front(app, lifecycle, lambda _: None, 60.0)(SCOPE, receive, send)
    assert lifecycle.num_in_progress == 0
    return sent


async def crash_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError


async def crash_halfway(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ZeroDivisionError


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await send(await receive())


async def test_a_crash_is_answered_500_in_openais_shape() -> None:
    start, body = await serve(crash_at_once, {"type": "http.request", "body": b""})
    assert start["status"] == 500
    assert json.loads(body["body"])["error"]["type"] == "server_error"


async def test_a_crash_after_the_response_began_adds_nothing_to_it() -> None:
    sent = await serve(crash_halfway, {"type": "http.request", "body": b""})
    assert [message["type"] for message in sent] == ["http.response.start"]


async def test_a_client_that_leaves_while_it_sends_is_never_served() -> None:
    part = {"type": "http.request", "body": b"{", "more_body": True}
    assert await serve(crash_at_once, part, {"type": "http.disconnect"}) == []


@pytest.mark.parametrize("num_parts", [1, 3])
async def test_a_body_arrives_in_one_piece(num_parts: int) -> None:
    parts = [
        {"type": "http.request", "body": b"ab", "more_body": number < num_parts}
        for number in range(1, num_parts + 1)
    ]
    sent = await serve(echo, *parts)
    assert sent == [{"type": "http.request", "body": b"ab" * num_parts, "more_body": False}]
