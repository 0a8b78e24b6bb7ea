"""Events as they are written: comments in silence, errors counted, an end that says it is one."""

import asyncio
import json

import pytest
from starlette.types import Message

from forebay_runtime.server.errors import EngineFailed
from forebay_runtime.server.event_stream import COMMENT, EventWriter, Manners


class Sent:
    """Takes what an ASGI application sends."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


def manners(keep_alive_seconds: float, statuses: list[int] | None = None) -> Manners:
    return Manners(keep_alive_seconds, (statuses if statuses is not None else []).append)


async def test_the_status_goes_out_before_there_is_anything_to_say() -> None:
    sent = Sent()
    async with EventWriter(sent, manners(60.0)):
        assert [message["status"] for message in sent.messages] == [200]
        assert dict(sent.messages[0]["headers"])[b"content-type"].startswith(b"text/event-stream")


async def test_silence_is_filled_with_comments_until_the_end() -> None:
    sent = Sent()
    async with EventWriter(sent, manners(0.001)) as events:
        async with asyncio.timeout(60):
            while sent.body.count(COMMENT) < 3:
                await asyncio.sleep(0.001)
        await events.write({"a": 1})
        await events.write_done()
    assert sent.body.replace(COMMENT, b"") == b'data: {"a":1}\n\ndata: [DONE]\n\n'
    num_messages = len(sent.messages)
    await asyncio.sleep(0.01)
    assert len(sent.messages) == num_messages
    assert sent.messages[-1]["more_body"] is False


async def test_a_stream_that_speaks_says_no_comment() -> None:
    sent = Sent()
    async with EventWriter(sent, manners(60.0)) as events:
        for number in range(5):
            await events.write({"n": number})
            await asyncio.sleep(0)
    assert b": keep-alive" not in sent.body


async def test_an_error_that_ends_a_stream_is_counted_by_its_status() -> None:
    sent, statuses = Sent(), list[int]()
    async with EventWriter(sent, manners(60.0, statuses)) as events:
        await events.write_error(EngineFailed("broke"))
    assert statuses == [500]
    assert json.loads(sent.body.removeprefix(b"data: "))["error"]["message"] == "broke"
    assert b"[DONE]" not in sent.body


async def test_a_stream_that_breaks_is_left_without_an_end() -> None:
    sent = Sent()
    with pytest.raises(ZeroDivisionError):
        async with EventWriter(sent, manners(60.0)):
            raise ZeroDivisionError
    assert [message["type"] for message in sent.messages] == ["http.response.start"]


async def test_text_that_is_no_unicode_is_written_all_the_same() -> None:
    sent = Sent()
    async with EventWriter(sent, manners(60.0)) as events:
        await events.write({"text": "\ud800"})
    assert sent.body == b'data: {"text":"?"}\n\n'
