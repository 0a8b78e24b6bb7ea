"""What each request is called: as its client says, or by a name of its own.

It stands in a header of the answer, whatever the answer is, and in the ids of what was made.
"""

from __future__ import annotations

import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay_runtime.server.api.bodies.fields import MAX_ID_CHARS

HEADER = "X-Request-Id"
_STATE_KEY = "request_id"


def read_request_id(request: Request) -> str:
    """The name of a request that came through RequestIdHeader."""
    return str(getattr(request.state, _STATE_KEY))


class RequestIdHeader:
    """Names requests, and tells the name with the answer."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = Headers(scope=scope).get(HEADER, "")[:MAX_ID_CHARS] or uuid.uuid4().hex
        scope.setdefault("state", {})[_STATE_KEY] = name

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        await self._app(scope, receive, telling)
