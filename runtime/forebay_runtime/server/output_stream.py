"""One request's outputs on their way from the engine's thread to whoever answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from forebay_runtime.request import Output
from forebay_runtime.server.errors import ApiError

Take = Callable[[Output | ApiError], None]
"""Is told of an output, or of the error that ends them; it may not raise."""


class Deadline(NamedTuple):
    """When a request's time is up, by the asyncio loop's clock, and what it was given.

    Choices of one request share one, so that none of them ends before the others.
    """

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds, seconds)


@dataclass
class OutputStream:
    """What the loop knows of a request that the engine has. Lives on the asyncio loop.

    put: told of each output as it comes; the first one, without tokens, says that the engine took
    the request. An error ends them: it was refused or cut.
    """

    num_prompt_tokens: int
    put: Take
    has_begun: bool = False
    """Is there a token of the answer?"""
    timer: asyncio.TimerHandle | None = None
    """Ends the request when its time is up."""
