"""The outermost layer: who is let in, how much they may send, and what they hear if we break.

A plain ASGI application around the API, because it must see every byte and every exception.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay_runtime.server.errors import ApiError, BodyTooLarge, EngineFailed, Unavailable
from forebay_runtime.server.lifecycle import Lifecycle, Phase

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 4 * 1024**2
"""More than any prompt that fits a context; less than takes seconds to read as JSON, during which
nobody else is served."""
MAX_DISCARDED_BYTES = 16 * MAX_BODY_BYTES
_LOADING_RETRY_SECONDS = 5
_LEAVING_RETRY_SECONDS = 1


def is_api_path(path: str) -> bool:
    """Does the path need the engine? The others are probes and must answer in every phase."""
    return path.startswith("/v1/") or path in ("/tokenize", "/detokenize")


class Front:
    """Admission, body limit and the last exception handler."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle) -> None:
        """Wrap app; lifecycle says who may enter and counts who is in."""
        self._app = app
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if not is_api_path(scope["path"]):
            await self._guarded(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            with suppress(BodyTooLarge, _Gone):
                await _read_body(receive)
            await refusal.to_response()(scope, receive, send)
            return
        self._lifecycle.num_in_progress += 1
        try:
            body = await _read_body(receive)
            await self._guarded(scope, _replay(body, receive), send)
        except BodyTooLarge as error:
            await error.to_response()(scope, receive, send)
        except _Gone:
            pass
        finally:
            self._lifecycle.num_in_progress -= 1

    def _refusal(self, scope: Scope) -> ApiError | None:
        phase = self._lifecycle.phase
        if phase is Phase.LOADING:
            return Unavailable(
                "The model is being loaded; try again in a moment",
                code="loading",
                retry_after_seconds=_LOADING_RETRY_SECONDS,
            )
        if phase is Phase.FAILED:
            return Unavailable(
                "The engine has failed and the server is about to restart",
                code="failed",
                retry_after_seconds=_LOADING_RETRY_SECONDS,
            )
        if phase is Phase.DRAINING and scope["state"].get("is_newcomer", True):
            return Unavailable(
                "The server is shutting down; send the request again to reach another one",
                code="draining",
                retry_after_seconds=_LEAVING_RETRY_SECONDS,
            )
        return None

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the API; nothing that it raises reaches the connection."""
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception:
            logger.exception("Failed to answer method=%s path=%s", scope["method"], scope["path"])
            if not has_started:
                error = EngineFailed("The server failed to answer this request")
                await error.to_response()(scope, receive, send)


class _Gone(Exception):
    """The client left before it had sent its request."""


async def _read_body(receive: Receive) -> bytes:
    """Read the whole body.

    Raises: BodyTooLarge, after reading on for a while: many clients read no answer before they
    have sent everything.
    """
    body, num_bytes, is_more = [], 0, True
    while is_more and num_bytes <= MAX_DISCARDED_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        chunk = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes <= MAX_BODY_BYTES:
            body.append(chunk)
        is_more = message.get("more_body", False)
    if num_bytes > MAX_BODY_BYTES:
        raise BodyTooLarge(f"The request's body is larger than the {MAX_BODY_BYTES} bytes allowed")
    return b"".join(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body that was read, then whatever else comes."""
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
