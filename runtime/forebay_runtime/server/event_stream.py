"""Server-sent events: written as they come, and a comment while there is nothing to say.

Proxies and clients take a silent connection for a dead one; a comment every few seconds shows that
it lives, and every reader of events skips it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring
from types import TracebackType
from typing import Any

from starlette.types import Send

from forebay_runtime.server.errors import ApiError

WriteNow = Callable[[bytes], bool]

COMMENT = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the events
]


@dataclass(frozen=True)
class Manners:
    """What all streams of one server have in common.

    keep_alive_seconds: a stream silent for so long says a comment. count_error is told the status
    of an error that ended a stream: its response has said 200 before.
    """

    keep_alive_seconds: float
    count_error: Callable[[int], None]


class EventWriter:
    """The body of one response; the status goes out when it is entered.

    Leaving it ends the response, unless by an exception: then the connection shows that the answer
    broke.
    """

    def __init__(self, send: Send, manners: Manners, write_now: WriteNow | None = None) -> None:
        """send is ASGI's; write_now writes a part of the body past it, or says that it cannot."""
        self._send = send
        self._write_now = write_now or _cannot
        self._manners = manners
        self._loop = asyncio.get_running_loop()
        self._said_at = self._loop.time()
        self._comments: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EventWriter:
        """Say 200, before there is anything else to say."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        self._comments = self._loop.create_task(self._comment())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the comments and end the body."""
        if self._comments is not None:
            self._comments.cancel()
            await asyncio.gather(self._comments, return_exceptions=True)
        if error is None:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def write(self, *bodies: dict[str, Any]) -> None:
        """Send objects, an event each, in one push."""
        if bodies:
            await self.push(b"".join(map(to_event, bodies)))

    async def write_error(self, error: ApiError) -> None:
        """Send the error that ends the answer; nothing may follow."""
        self._manners.count_error(error.status)
        await self.write(error.to_body())

    async def write_done(self) -> None:
        """Say that the answer is whole."""
        await self.push(b"data: [DONE]\n\n")

    async def push(self, content: bytes) -> None:
        """Send events as they are written."""
        self._said_at = self._loop.time()
        if not self._write_now(content):
            await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def _comment(self) -> None:
        patience = self._manners.keep_alive_seconds
        while True:
            await asyncio.sleep(max(0.0, self._said_at + patience - self._loop.time()))
            if self._loop.time() - self._said_at >= patience:
                await self.push(COMMENT)


def to_event(body: dict[str, Any]) -> bytes:
    """One object as an event."""
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + content.encode(errors="replace") + b"\n\n"


class TextEvent:
    """An event that differs in one text alone: what stands around it is written once."""

    def __init__(self, build: Callable[[str], dict[str, Any]]) -> None:
        """build makes the object of a text, which stands in it once."""
        mark = secrets.token_hex(16)
        self._before, self._after = to_event(build(mark)).split(b'"%b"' % mark.encode())

    def of(self, text: str) -> bytes:
        """The event of a text."""
        return self._before + encode_basestring(text).encode(errors="replace") + self._after


def _cannot(content: bytes) -> bool:
    return False
