"""One client's TCP connection, taught to leave without turning a client's request into an error.

A kept-alive connection may carry a request at any moment, and a close that crosses it is an error
to the client. So while the server leaves, a connection is closed only
  - by a response whose headers said `Connection: close`, or
  - after it was silent for a while, with nothing waiting to be read.
A response whose headers left before SIGTERM could not announce anything: its connection stays, and
serves one more request should one come.
"""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forebay_runtime.server.errors import build_error_body

MAX_HEAD_BYTES = 64 * 1024
"""No client sends this much before a body; nothing else would end a head that never does."""
LINGER_SECONDS = 1.0
"""What a client that was refused gets to read why."""
SILENCE_SECONDS = 1.0
"""A client that had its last response this long ago is taken to see a close before it writes."""


_WRITER = "write_now"
"""Where a request's state has what writer_of finds."""


def writer_of(scope: Scope) -> Callable[[bytes], bool] | None:
    """What writes parts of a response's body at once, for a request that came by a Connection.

    It says false where it cannot: before the response has begun, while the client reads too slowly,
    and where a body goes out in one piece. ASGI's send then does, as it would anyway: that calls
    through every layer of the application, which costs a small part more than all else.
    """
    writer: Callable[[bytes], bool] | None = scope.get("state", {}).get(_WRITER)
    return writer


class Departure(Protocol):
    """What a connection asks the lifecycle."""

    @property
    def is_leaving(self) -> bool:
        """Was the server told to go?"""

    @property
    def turns_newcomers_away(self) -> bool:
        """Is a connection made now too late to be served?"""


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with the manners above."""

    def __init__(self, departure: Departure, head_seconds: float, **uvicorn_arguments: Any) -> None:
        """head_seconds: what a head may take from its first byte. uvicorn passes by name."""
        super().__init__(**uvicorn_arguments)
        self._departure = departure
        self._head_seconds = head_seconds
        self._is_newcomer = False
        self._is_reading_head = False
        self._is_refused = False
        self._num_head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._silent_since = 0.0
        self._announced: RequestResponseCycle | None = None

    def connection_made(self, transport: Any) -> None:
        """Note whether the client came too late."""
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        self._is_newcomer = self._departure.turns_newcomers_away
        # One that never says anything is kept as long as one that has nothing more to say.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer behind."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._forget_head_timer()

    def data_received(self, data: bytes) -> None:
        """Read on, unless what should become a request's head has no end."""
        if self._is_refused:
            return
        super().data_received(data)
        self._num_head_bytes += len(data)
        is_too_long = self._is_reading_head and self._num_head_bytes > MAX_HEAD_BYTES
        if is_too_long and not self._is_refused:
            self._refuse(431, "The request's head is too long")

    def on_message_begin(self) -> None:
        """A request begins to arrive."""
        super().on_message_begin()
        self._is_reading_head = True
        self._num_head_bytes = 0
        self._head_timer = self.loop.call_later(
            self._head_seconds, self._refuse, 408, "The request's head did not arrive in time"
        )

    def on_headers_complete(self) -> None:
        """A request is known; its response will say so if it is the connection's last."""
        earlier = self.cycle
        super().on_headers_complete()
        self._is_reading_head = False
        self._forget_head_timer()
        if self.scope["http_version"] == "1.0":
            _end_with_connection(self.cycle)
        self.scope["state"]["is_newcomer"] = self._is_newcomer
        self.scope["state"][_WRITER] = partial(_write_now, self.cycle)
        if self._departure.is_leaving:
            if earlier is not None and earlier is self._announced and not earlier.response_started:
                earlier.keep_alive = True  # pipelined: the later response is the last one
            self.announce_close()

    def on_response_complete(self) -> None:
        """The client may now write its next request."""
        super().on_response_complete()
        self._silent_since = self.loop.time()

    def announce_close(self) -> None:
        """Let the last response that has not begun say that the connection ends with it."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_started and cycle.keep_alive:
            cycle.keep_alive = False
            self._announced = cycle

    @property
    def is_idle(self) -> bool:
        """Is no request being read or answered?"""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and not self._is_reading_head and not self.transport.is_closing()

    @property
    def is_owed_service(self) -> bool:
        """May an idle client of the serving days be writing a request this very moment?"""
        return self.is_idle and not self._is_newcomer

    def close_if_silent(self) -> None:
        """Close an idle connection unless its client has just been, or is, writing."""
        if not self.is_idle or self.loop.time() - self._silent_since < SILENCE_SECONDS:
            return
        if not self._has_unread_bytes():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the shape that all errors have."""
        self._refuse(400, msg)

    def _refuse(self, status: int, message: str) -> None:
        """Answer what never became a request, and close."""
        body = json.dumps(build_error_body(message, "invalid_request_error")).encode()
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
            % (status, HTTPStatus(status).phrase.encode(), len(body))
        )
        self.transport.write(head + body)
        # A close with bytes unread would take the answer away from the client that sent them.
        self._is_refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _forget_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _has_unread_bytes(self) -> bool:
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))


def _end_with_connection(cycle: RequestResponseCycle) -> None:
    """Send a response to HTTP/1.0, which knows no chunks: its end is the connection's."""
    send = cycle.send

    async def send_plain(message: Any) -> None:
        cycle.chunked_encoding = False
        cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_plain  # type: ignore[method-assign]


def _write_now(cycle: RequestResponseCycle, content: bytes) -> bool:
    """Write a chunk of a body, as the cycle's own send would."""
    if not cycle.chunked_encoding or cycle.response_complete or cycle.flow.write_paused:
        return False
    if cycle.disconnected or not content:
        return True
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(content), content))
    return True
