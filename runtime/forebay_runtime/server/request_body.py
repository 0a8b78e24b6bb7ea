"""A request's body: how much of it is read, how long for, and what is done with the rest."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from forebay_runtime.server.errors import ApiError, BodyTooLarge, RequestTimedOut

MAX_BODY_BYTES = 32 * 1024**2
"""More than any prompt that fits a context."""
MAX_SKIPPED_BYTES = 2 * MAX_BODY_BYTES
"""What is read of a body that was refused."""


class Gone(Exception):
    """The client left before it had sent its request."""


async def read_body(scope: Scope, receive: Receive, max_seconds: float) -> bytes:
    """Read the whole body.

    Raises: BodyTooLarge as soon as that is known; RequestTimedOut; Gone.
    """
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if int(length) > MAX_BODY_BYTES:
        raise _too_large()
    parts, num_bytes, is_more = [], 0, True
    try:
        async with asyncio.timeout(max_seconds):
            while is_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                num_bytes += len(parts[-1])
                if num_bytes > MAX_BODY_BYTES:
                    raise _too_large()
                is_more = message.get("more_body", False)
    except TimeoutError:
        text = f"The request's body did not arrive within {max_seconds:g} seconds"
        raise RequestTimedOut(text, code="timeout") from None
    return b"".join(parts)


async def refuse_early(
    error: ApiError, scope: Scope, receive: Receive, send: Send, max_seconds: float
) -> None:
    """Answer while the body still comes, and read on for a while before the connection closes.

    Many clients read no answer before they have sent everything; a close would take it away.
    """
    response = with_close(error)
    if b"expect" in dict(scope["headers"]):  # it asked first, and will not send the body now
        await response(scope, receive, send)
        return
    headers = response.raw_headers
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(max_seconds):
            await _skip_body(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body that was read, then whatever else comes."""
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def with_close(error: ApiError) -> Response:
    """The error as a response that is its connection's last."""
    response = error.to_response()
    response.headers["Connection"] = "close"
    return response


async def _skip_body(receive: Receive) -> None:
    num_bytes, is_more = 0, True
    while is_more and num_bytes < MAX_SKIPPED_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        is_more = message.get("more_body", False)


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"The request's body is larger than the {MAX_BODY_BYTES} bytes allowed")
