"""Which fields of a request nobody read, told in a header of its answer.

Clients send fields newer than any server, so that an unknown one is no error; but a misspelt one
must not vanish without a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay_runtime.server.api.bodies.body import Body
from forebay_runtime.server.api.bodies.chat import Message as ChatMessage
from forebay_runtime.server.api.bodies.elsewhere import IGNORED, NEUTRAL, REMOVED
from forebay_runtime.server.api.messages import KNOWN_FIELDS

HEADER = "X-Forebay-Ignored"
MAX_NAMES = 20
MAX_NAME_CHARS = 64
_KNOWN = IGNORED.union(NEUTRAL, REMOVED)
_STATE_KEY = "ignored_fields"
_NO_NAME_CHAR = re.compile("[^!-+\\--~]")
"""All but ASCII that can be seen; the comma stands between names."""


def list_ignored(body: Body, template_source: str = "") -> list[str]:
    """The first fields that neither this server nor its model's template knows, by their paths.

    A message's are named once, whichever message has them.
    """
    paths = islice(_unknown_paths(body, template_source), MAX_NAMES)
    return [_NO_NAME_CHAR.sub("?", path[:MAX_NAME_CHARS]) for path in paths]


def note_ignored(request: Request, names: list[str]) -> None:
    """Have the names told with the answer to this request, whatever it will be."""
    setattr(request.state, _STATE_KEY, names)


class IgnoredFieldsHeader:
    """Adds the header to answers that have something to tell."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def telling(message: Message) -> None:
            names = scope.get("state", {}).get(_STATE_KEY)
            if names and message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = ",".join(names)
            await send(message)

        await self._app(scope, receive, telling)


def _unknown_paths(body: Body, template_source: str) -> Iterator[str]:
    yield from (name for name in body.model_extra or () if name not in _KNOWN)
    for field in type(body).model_fields:
        value = getattr(body, field)
        if isinstance(value, Body):
            yield from (f"{field}.{path}" for path in _unknown_paths(value, template_source))
        elif field == "messages":
            yield from _of_messages(value, template_source)
        elif field == "tools" and value and "tools" not in template_source:
            # A call that must be made is made all the same, by the grammar of the answer.
            if getattr(body, "tool_choice", None) in (None, "auto", "none"):
                yield field


def _of_messages(messages: list[ChatMessage], template_source: str) -> Iterator[str]:
    names = {name: None for message in messages for name in message.model_extra or ()}
    for name in names:
        if name not in KNOWN_FIELDS and name not in template_source:
            yield f"messages.{name}"
