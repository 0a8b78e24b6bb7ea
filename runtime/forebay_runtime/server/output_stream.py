"""One request's outputs on their way from the engine's thread to whoever answers it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from forebay_runtime.request import Output
from forebay_runtime.server.errors import ApiError


@dataclass
class OutputStream:
    """Outputs, or the error that ends them. Lives on the asyncio loop."""

    request_id: str
    num_prompt_tokens: int
    has_begun: bool = False
    """Is there a token of the answer?"""
    timer: asyncio.TimerHandle | None = None
    """Ends the request when its time is up."""
    _items: asyncio.Queue[Output | ApiError] = field(default_factory=asyncio.Queue)

    async def next(self) -> Output:
        """Wait for the next output; the first one, without tokens, says that the engine took it.

        Raises: ApiError if the request was refused or cut.
        """
        item = await self._items.get()
        if isinstance(item, ApiError):
            raise item
        return item

    def put(self, item: Output | ApiError) -> None:
        """Hand over an output, or the reason why none will follow."""
        self._items.put_nowait(item)
