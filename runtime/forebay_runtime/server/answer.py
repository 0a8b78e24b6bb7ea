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

from forebay_runtime.server.errors import ApiError, build_json_response
from forebay_runtime.server.event_stream import EventWriter, Manners
from forebay_runtime.server.generation import Generation, Piece

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """A finished answer."""

    text: str
    finish_reason: str


class Wording(Protocol):
    """How one API spells its answers; every method returns JSON objects."""

    def opening(self, index: int) -> list[dict[str, Any]]:
        """What a stream says before the first text of choice `index`."""

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """A piece of choice `index` in a stream."""

    def usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The stream's last object, if token counts were asked for."""

    def whole(self, answers: Sequence[Answer], usage: dict[str, Any]) -> dict[str, Any]:
        """All choices at once."""


async def send_whole(
    generations: Sequence[Generation], wording: Wording, receive: Receive
) -> Response:
    """Wait for all answers and build one response; give up if the client leaves.

    Raises: ApiError if an answer was refused or cut.
    """
    try:
        answers = await until_gone(_collect(generations), receive)
        if answers is None:
            return _nobody()
        return build_json_response(wording.whole(answers, count_usage(generations)))
    finally:
        _close(generations)


async def send_stream(
    generations: Sequence[Generation],
    wording: Wording,
    includes_usage: bool,
    manners: Manners,
    receive: Receive,
) -> Response:
    """Wait until the engine took every request, then answer with a stream of events.

    Raises: ApiError if a request was refused.
    """
    try:
        accepted = asyncio.gather(*(generation.accepted() for generation in generations))
        if await until_gone(accepted, receive) is not None:
            return EventStream(generations, wording, includes_usage, manners)
    except BaseException:
        _close(generations)
        raise
    _close(generations)
    return _nobody()


class EventStream(Response):
    """Server-sent events, one a piece, `[DONE]` at the end of a whole answer.

    An answer that breaks ends with an event that carries the error, and no `[DONE]`.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        wording: Wording,
        includes_usage: bool,
        manners: Manners,
    ) -> None:
        """The generations must have been accepted."""
        super().__init__()
        self._generations = generations
        self._wording = wording
        self._includes_usage = includes_usage
        self._manners = manners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the end, or until the client leaves."""
        try:
            await until_gone(self._send_all(send), receive)
        finally:
            _close(self._generations)

    async def _send_all(self, send: Send) -> bool:
        async with EventWriter(send, self._manners) as events:
            try:
                async with aclosing(self._bodies()) as bodies:
                    async for body in bodies:
                        await events.write(body)
                await events.write_done()
            except ApiError as error:
                await events.write_error(error)
        return True

    async def _bodies(self) -> AsyncGenerator[dict[str, Any], None]:
        for index in range(len(self._generations)):
            for body in self._wording.opening(index):
                yield body
        async with aclosing(_merge(self._generations)) as pieces:
            async for index, piece in pieces:
                for body in self._wording.chunks(index, piece):
                    yield body
        if self._includes_usage:
            yield self._wording.usage(count_usage(self._generations))


def count_usage(generations: Sequence[Generation]) -> dict[str, Any]:
    """OpenAI's token counts."""
    num_prompt = sum(generation.num_prompt_tokens for generation in generations)
    num_new = sum(generation.num_tokens for generation in generations)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_new,
        "total_tokens": num_prompt + num_new,
    }


async def until_gone(work: Awaitable[T], receive: Receive) -> T | None:
    """Do the work, or stop it when the client disconnects and return None."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, watcher):
            future.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _collect(generations: Sequence[Generation]) -> list[Answer]:
    return list(await asyncio.gather(*map(_collect_one, generations)))


async def _collect_one(generation: Generation) -> Answer:
    text, reason = [], ""
    async for piece in generation.pieces():
        text.append(piece.text)
        reason = piece.finish_reason or reason
    return Answer("".join(text), reason)


async def _merge(generations: Sequence[Generation]) -> AsyncGenerator[tuple[int, Piece], None]:
    """The pieces of several answers as they come.

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
            item = await ready.get()
            if isinstance(item, ApiError):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def _close(generations: Sequence[Generation]) -> None:
    for generation in generations:
        generation.close()


def _nobody() -> Response:
    """What is returned to a client that left; it is never written."""
    return Response(status_code=499)
