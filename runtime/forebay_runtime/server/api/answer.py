"""Send an answer to whoever asked, whole or as a stream, and stop making it when they leave.

An endpoint hands over its generations and a Wording: how its API spells chunks and wholes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forebay_runtime.server.api.usage import Usage, count_usage
from forebay_runtime.server.errors import ApiError, build_json_response
from forebay_runtime.server.event_stream import EventWriter, Manners
from forebay_runtime.server.generation import Generation, Piece, join

T = TypeVar("T")


class Wording(Protocol):
    """How one API spells one answer; every method returns JSON objects."""

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """What a stream says about the next piece of choice `index`, its opening included."""

    def counts(self, usage: Usage) -> dict[str, Any]:
        """The stream's last object, if token counts were asked for."""

    def whole(self, answers: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """All choices at once."""


@dataclass(frozen=True)
class StreamForm:
    """What a stream carries beside its chunks; manners are the server's."""

    manners: Manners
    includes_usage: bool = False
    counts_always: bool = False


async def send_whole(
    generations: Sequence[Generation], wording: Wording, n: int, receive: Receive
) -> Response:
    """Wait for all answers and build one response; give up if the client leaves.

    n: how many answers each prompt has.
    Raises: ApiError if an answer was refused or cut.
    """
    try:
        answers = await until_gone(collect(generations), receive)
        if answers is None:
            return nobody()
        return build_json_response(wording.whole(answers, count_usage(generations, n)))
    finally:
        close_all(generations)


async def send_stream(
    generations: Sequence[Generation],
    wording: Wording,
    n: int,
    form: StreamForm,
    receive: Receive,
) -> Response:
    """Wait until the engine took every request, then answer with a stream.

    Raises: ApiError if a request was refused.
    """
    try:
        accepted = asyncio.gather(*(generation.accepted() for generation in generations))
        if await until_gone(accepted, receive) is not None:
            return Stream(generations, wording, n, form)
    except BaseException:
        close_all(generations)
        raise
    close_all(generations)
    return nobody()


class Stream(Response):
    """Server-sent events as the pieces come, `[DONE]` at the end of a whole answer.

    An answer that breaks ends with an event that carries the error, and no `[DONE]`.
    """

    def __init__(
        self, generations: Sequence[Generation], wording: Wording, n: int, form: StreamForm
    ) -> None:
        """The generations must have been accepted."""
        super().__init__()
        self._generations = generations
        self._wording = wording
        self._n = n
        self._form = form
        self._num_told = [0] * len(generations)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, or until the client leaves."""
        try:
            await until_gone(self._send_all(send), receive)
        finally:
            close_all(self._generations)

    async def _send_all(self, send: Send) -> bool:
        async with EventWriter(send, self._form.manners) as events:
            try:
                async with aclosing(_merge(self._generations)) as batches:
                    async for batch in batches:
                        await events.write(*(c for each in batch for c in self._chunks(*each)))
                if self._form.includes_usage:
                    usage = count_usage(self._generations, self._n)
                    await events.write(self._wording.counts(usage))
                close_all(self._generations)  # so that what a client saw end was counted
                await events.write_done()
            except ApiError as error:
                await events.write_error(error)
        return True

    def _chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        chunks = self._wording.chunks(index, piece)
        if not self._form.counts_always:
            return chunks
        num_prompt = len(self._generations[index].prompt_token_ids)
        num_before = self._num_told[index]
        num_now = self._num_told[index] = num_before + len(piece.tokens)
        # The opening, which stands before a piece's own chunk, has cost nothing.
        counts = [num_now if chunk is chunks[-1] else num_before for chunk in chunks]
        return [
            chunk | {"usage": Usage(num_prompt, num_new).to_body()}
            for chunk, num_new in zip(chunks, counts, strict=True)
        ]


async def until_gone(work: Awaitable[T], receive: Receive) -> T | None:
    """Do the work, or stop it when the client disconnects and return None."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, watcher):
            future.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def collect(generations: Sequence[Generation]) -> list[Piece]:
    """Every answer, whole.

    Raises: ApiError of the first that breaks.
    """
    return list(await asyncio.gather(*map(_collect_one, generations)))


def close_all(generations: Sequence[Generation]) -> None:
    """Give up what has not ended."""
    for generation in generations:
        generation.close()


def nobody() -> Response:
    """What is returned to a client that left; it is never written."""
    return Response(status_code=499)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _collect_one(generation: Generation) -> Piece:
    return join([piece async for piece in generation.pieces()])


async def _merge(
    generations: Sequence[Generation],
) -> AsyncGenerator[list[tuple[int, Piece]], None]:
    """The pieces of several answers, all that are there at once.

    Raises: ApiError of the first answer that breaks.
    """
    ready: asyncio.Queue[tuple[int, Piece] | ApiError | None] = asyncio.Queue()

    async def pump(index: int, generation: Generation) -> None:
        try:
            async for piece in generation.pieces():
                ready.put_nowait((index, piece))
            ready.put_nowait(None)
        except ApiError as error:
            ready.put_nowait(error)

    pumps = [asyncio.ensure_future(pump(*each)) for each in enumerate(generations)]
    num_open = len(pumps)
    try:
        while num_open:
            items = [await ready.get()]
            while not ready.empty():
                items.append(ready.get_nowait())
            num_open -= items.count(None)
            yield [item for item in items if isinstance(item, tuple)]
            for item in items:
                if isinstance(item, ApiError):
                    raise item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
