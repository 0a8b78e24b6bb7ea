"""One answer being made: the engine's tokens become text, and every end is accounted for once.

Called by the endpoints. A Generation must be closed whatever happens; closing one that has not
ended aborts it in the engine before its next step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from forebay_runtime.detokenizer import Detokenizer
from forebay_runtime.request import Output, Request
from forebay_runtime.server.engine_loop import EngineLoop
from forebay_runtime.server.errors import ApiError, RequestTimedOut
from forebay_runtime.server.queue_gate import QueueGate
from forebay_runtime.server.request_record import RequestRecord
from forebay_runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Piece:
    """A part of an answer; the last one has a finish_reason, stop or length."""

    text: str
    finish_reason: str | None = None


@dataclass(frozen=True)
class Workshop:
    """What every generation needs: the engine, its queue and the tokenizer."""

    loop: EngineLoop
    gate: QueueGate
    tokenizer: Tokenizer


class Generation:
    """One request on its way through the engine."""

    def __init__(
        self,
        workshop: Workshop,
        request: Request,
        stops: tuple[str, ...],
        record: RequestRecord,
        timeout_seconds: float | None = None,
    ) -> None:
        """Submit the request; stops are the strings that end its answer."""
        self._workshop = workshop
        self._record = record
        self._request_id = request.request_id
        self._detokenizer = Detokenizer(workshop.tokenizer.token_bytes, stops)
        self._end_ids = request.sampling.stop_token_ids
        self._reason: str | None = None
        self._is_closed = False
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_tokens = 0
        self._stream = workshop.loop.submit(request, timeout_seconds)

    async def accepted(self) -> None:
        """Wait until the engine took the request, so that a refusal can still be a status.

        Raises: ApiError if it did not.
        """
        await self._next()

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer, piece by piece; the last has a finish_reason.

        Raises: ApiError if the answer was cut.
        """
        while self._reason is None:
            output = await self._next()
            text = self._to_text(output)
            if self._detokenizer.is_stopped:
                self._reason = "stop"
                self._workshop.loop.abort(self._request_id)
            elif output.finish_reason is not None:
                self._reason = output.finish_reason
                text += self._detokenizer.flush()
            if text or self._reason:
                yield Piece(text, self._reason)

    def close(self) -> None:
        """Give up what has not ended, and count the request."""
        if self._is_closed:
            return
        self._is_closed = True
        self._workshop.loop.abort(self._request_id)
        self._workshop.gate.note_request_seconds(self._record.age_seconds)
        self._record.close(self._reason or "abort")

    async def _next(self) -> Output:
        try:
            output = await self._stream.next()
        except ApiError as error:
            self._reason = "timeout" if isinstance(error, RequestTimedOut) else "error"
            raise
        self._record.observe(output)
        return output

    def _to_text(self, output: Output) -> str:
        """Turn an output's tokens into text, up to the one that ends the answer."""
        token_ids = output.token_ids
        if output.finish_reason == "stop" and token_ids and token_ids[-1] in self._end_ids:
            token_ids = token_ids[:-1]  # it ends the answer and is no part of it
            self.num_tokens += 1
        text = []
        for token_id in token_ids:
            self.num_tokens += 1
            text.append(self._detokenizer.feed(token_id))
            if self._detokenizer.is_stopped:
                break
        return "".join(text)
