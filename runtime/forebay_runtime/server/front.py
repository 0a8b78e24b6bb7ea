"""The outermost layer: who is let in, how much they may send, and what they hear if we break.

A plain ASGI application around the API, because it must see every byte and every exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay_runtime.server.errors import (
    ApiError,
    BodyTooLarge,
    EngineFailed,
    RequestTimedOut,
    Unavailable,
)
from forebay_runtime.server.lifecycle import Lifecycle, Phase
from forebay_runtime.server.request_body import (
    Gone,
    read_body,
    refuse_early,
    replay,
    with_close,
)

logger = logging.getLogger(__name__)

_LOADING_RETRY_SECONDS = 5
_LEAVING_RETRY_SECONDS = 1
_PROBES = ("/health", "/ping", "/ready", "/load", "/metrics", "/version")
_NOBODY = 499
"""The status of answers to clients that left; it is never sent."""


def is_api_path(path: str) -> bool:
    """May the path need the engine? The others are probes and must answer in every phase."""
    return path not in _PROBES


class Front:
    """Admission, body limit and the last exception handler."""

    def __init__(
        self,
        app: ASGIApp,
        lifecycle: Lifecycle,
        count_error: Callable[[int], None],
        body_seconds: float,
    ) -> None:
        """Wrap app; lifecycle says who may enter and counts who is in.

        count_error is told the status of each answer of the API that was an error; body_seconds is
        what a body may take to arrive.
        """
        self._body_seconds = body_seconds
        self._app = app
        self._lifecycle = lifecycle
        self._count_error = count_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        if scope["method"] == "HEAD":  # the connection leaves the body out
            scope = {**scope, "method": "GET"}
        if not is_api_path(scope["path"]):
            await self._guarded(scope, receive, send)
            return
        send = self._counting(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            with suppress(ApiError, Gone):
                await read_body(scope, receive, self._body_seconds)
            await refusal.to_response()(scope, receive, send)
            return
        self._lifecycle.num_in_progress += 1
        try:
            body = await read_body(scope, receive, self._body_seconds)
            await self._guarded(scope, replay(body, receive), send)
        except BodyTooLarge as error:
            await refuse_early(error, scope, receive, send, self._body_seconds)
        except RequestTimedOut as error:
            await with_close(error)(scope, receive, send)
        except Gone:
            pass
        finally:
            self._lifecycle.num_in_progress -= 1

    def _counting(self, send: Send) -> Send:
        async def counting(message: Message) -> None:
            status = message.get("status", 200)
            if status >= 400 and status != _NOBODY:
                self._count_error(status)
            await send(message)

        return counting

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
