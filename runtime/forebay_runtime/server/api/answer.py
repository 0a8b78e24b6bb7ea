"""Send an answer to whoever asked, whole or as a stream, and stop making it when they leave.

An endpoint hands over its generations and a Wording: how its API spells chunks and wholes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forebay_runtime.server.api.usage import Usage, count_usage
from forebay_runtime.server.connection import writer_of
from forebay_runtime.server.errors import ApiError, build_json_response
from forebay_runtime.server.event_stream import EventWriter, Manners, to_event
from forebay_runtime.server.generation import Generation
from forebay_runtime.server.piece import Piece

T = TypeVar("T")


class Wording(Protocol):
    """How one API spells one answer; every method returns JSON objects."""

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """What a stream says about the next piece of choice `index`, its opening included."""

    def text_event(self, index: int, piece: Piece) -> bytes | None:
        """The event of a piece that is text and nothing else, as most are; else None.

        It says what chunks would, and is asked in their place.
        """

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
        events = EventWriter(send, self._form.manners, writer_of(scope))
        try:
            await until_gone(self._send_all(events), receive)
        finally:
            close_all(self._generations)

    async def _send_all(self, events: EventWriter) -> bool:
        async with events:
            try:
                await self._send_pieces(events)
                if self._form.includes_usage:
                    usage = count_usage(self._generations, self._n)
                    await events.write(self._wording.counts(usage))
                close_all(self._generations)  # so that what a client saw end was counted
                await events.write_done()
            except ApiError as error:
                await events.write_error(error)
        return True

    async def _send_pieces(self, events: EventWriter) -> None:
        """Send the pieces of all answers, in one push all that are there at once.

        Raises: ApiError of the first answer that breaks.
        """
        has_more = asyncio.Event()
        for generation in self._generations:
            generation.on_due = has_more.set
        num_open = len(self._generations)
        while num_open:
            has_more.clear()
            taken = [
                (index, piece)
                for index, generation in enumerate(self._generations)
                for piece in generation.take()
            ]
            errors = [each.error for each in self._generations if each.error is not None]
            if taken:
                await events.push(b"".join([self._spell(*each) for each in taken]))
            if errors:
                raise errors[0]
            num_open -= sum([piece.finish_reason is not None for _, piece in taken])
            if not taken:
                await has_more.wait()

    def _spell(self, index: int, piece: Piece) -> bytes:
        if not self._form.counts_always:
            event = self._wording.text_event(index, piece)
            if event is not None:
                return event
        return b"".join([to_event(chunk) for chunk in self._chunks(index, piece)])

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
    return list(await asyncio.gather(*[generation.whole() for generation in generations]))


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
