"""An endpoint as data: where it is, who answers, and what goes in and comes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.context import Context

Handler = Callable[[Context, Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """One path; with a body it takes POST, else GET (and HEAD), and POST where it also posts.

    answer: the type of the JSON object of a 200, None where that is no JSON. body: a Body, or a
    union of several. streams: may the answer be a stream of events? errors: the statuses besides
    that it can have.
    """

    path: str
    handler: Handler
    answer: Any = None
    body: Any = None
    also_posts: bool = False
    streams: bool = False
    errors: tuple[int, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """What it takes."""
        if self.body is not None:
            return ("POST",)
        return ("GET", "POST") if self.also_posts else ("GET",)
