"""One answer being made: the engine's tokens become text, and every end is accounted for once.

Called by the endpoints. Outputs are read as they come, whether or not anybody waits for them. A
Generation must be closed whatever happens; closing one that has not ended aborts it in the engine
before its next step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forebay_runtime.request import Output, Request
from forebay_runtime.server.engine_loop import EngineLoop
from forebay_runtime.server.errors import ApiError, EngineFailed, RequestTimedOut
from forebay_runtime.server.metrics.request_record import RequestRecord
from forebay_runtime.server.output_stream import Deadline
from forebay_runtime.server.piece import Piece, Token, join
from forebay_runtime.server.queue_gate import QueueGate
from forebay_runtime.text.detokenizer import Detokenizer, TextRules
from forebay_runtime.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workshop:
    """What every generation needs: the engine, its queue and the tokenizer."""

    loop: EngineLoop
    gate: QueueGate
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Telling:
    """How an answer is told: as text by rules, in pieces of at least `interval` tokens.

    The first piece and the last are told at once. named_stop_ids: tokens that are told as the
    reason where they end the answer.
    """

    rules: TextRules = TextRules()
    interval: int = 1
    named_stop_ids: frozenset[int] = frozenset()


class Generation:
    """One request on its way through the engine."""

    def __init__(
        self,
        workshop: Workshop,
        request: Request,
        telling: Telling,
        record: RequestRecord,
        deadline: Deadline | None = None,
    ) -> None:
        """Submit the request."""
        self._workshop = workshop
        self._record = record
        self._request = request
        self._telling = telling
        self._detokenizer = Detokenizer(workshop.tokenizer.token_bytes, telling.rules)
        self._reason: str | None = None
        self.error: ApiError | None = None
        """Why no more pieces come, where the answer was cut."""
        self._is_closed = False
        self._untold: list[Piece] = []
        """What is too short to be told yet."""
        self._due: list[Piece] = []
        self._has_told = False
        self._accepted, self._ended = asyncio.Event(), asyncio.Event()
        self.on_due: Callable[[], object] = _pass
        """Called when there is something to take, or an error."""
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.embedding: tuple[float, ...] = ()
        workshop.loop.submit(request, self._receive, deadline)

    @property
    def prompt_token_ids(self) -> Sequence[int]:
        """The prompt, as the engine has it."""
        return self._request.prompt_token_ids

    async def accepted(self) -> None:
        """Wait until the engine took the request, so that a refusal can still be a status.

        Raises: ApiError if it did not.
        """
        await self._accepted.wait()
        if self.error is not None:
            raise self.error

    async def whole(self) -> Piece:
        """Wait for all of the answer.

        Raises: ApiError if it was cut.
        """
        await self._ended.wait()
        if self.error is not None:
            raise self.error
        return join(self.take())

    def take(self) -> list[Piece]:
        """The pieces that came since the last time; the answer's last has a finish_reason.

        A piece has text, or is the last: tokens without text are told with those after them.
        """
        due, self._due = self._due, []
        return due

    def close(self) -> None:
        """Give up what has not ended, and count the request."""
        if self._is_closed:
            return
        self._is_closed = True
        self._workshop.loop.abort(self._request.request_id)
        self._workshop.gate.note_request_seconds(self._record.age_seconds)
        self._record.close(self._reason or "abort")

    def _receive(self, item: Output | ApiError) -> None:
        """Read what a step gave; called by the loop, so nothing may come out of here."""
        if self._reason is not None or self._is_closed:
            return
        try:
            if isinstance(item, ApiError):
                self._break(item)
            else:
                piece = self._read(item)
                # Of several tokens of a step, those after a stop string are none of the answer's.
                self._record.observe(item, len(piece.tokens))
                self._tell(piece)
        except Exception:
            logger.exception("Failed to read an answer")
            self._workshop.loop.abort(self._request.request_id)
            self._break(EngineFailed("The server failed to read this answer"))

    def _break(self, error: ApiError) -> None:
        self._reason = "timeout" if isinstance(error, RequestTimedOut) else "error"
        self.error = error
        self._accepted.set()
        self._ended.set()
        self.on_due()

    def _tell(self, piece: Piece) -> None:
        """Add to what is untold, and make it due once it is long enough, or all."""
        self._accepted.set()
        self._untold.append(piece)
        if self._reason is None and not self._is_enough():
            return
        self._due.append(join(self._untold))
        self._untold, self._has_told = [], True
        if self._reason is not None:
            self._ended.set()
        self.on_due()

    def _is_enough(self) -> bool:
        if not any([piece.text for piece in self._untold]):
            return False
        num_tokens = sum([len(piece.tokens) for piece in self._untold])
        return not self._has_told or num_tokens >= self._telling.interval

    def _read(self, output: Output) -> Piece:
        """Turn a step's output into a piece of the answer, up to where the answer ends."""
        self.num_cached_tokens = output.num_cached_tokens or self.num_cached_tokens
        self.embedding = output.embedding or self.embedding
        tokens, text = self._read_tokens(output)
        stopped_by = self._detokenizer.stopped_by
        if stopped_by is not None:
            self._reason = "stop"
            self._workshop.loop.abort(self._request.request_id)
            return Piece(text, tokens, "stop", stopped_by, output.prompt_logprobs)
        if output.finish_reason is None:
            return Piece(text, tokens, prompt_scores=output.prompt_logprobs)
        self._reason = output.finish_reason
        text += self._detokenizer.flush()
        named = self._named_stop(output)
        return Piece(text, tokens, output.finish_reason, named, output.prompt_logprobs)

    def _read_tokens(self, output: Output) -> tuple[tuple[Token, ...], str]:
        tokens, text = [], []
        detokenizer = self._detokenizer
        for index, token_id in enumerate(output.token_ids):
            score = output.logprobs[index] if output.logprobs else None
            tokens.append(Token(token_id, detokenizer.num_chars, score))
            is_last = index == len(output.token_ids) - 1
            if not (is_last and self._is_silent_end(output, token_id)):
                text.append(detokenizer.feed(token_id))
            if detokenizer.stopped_by is not None:
                break
        self.num_tokens += len(tokens)
        return tuple(tokens), "".join(text)

    def _is_silent_end(self, output: Output, token_id: int) -> bool:
        """Does this last token end the answer, and is it no part of it?"""
        if output.finish_reason != "stop" or self._telling.rules.includes_stop:
            return False
        return token_id in self._request.sampling.stop_token_ids

    def _named_stop(self, output: Output) -> int | None:
        if output.finish_reason != "stop" or not output.token_ids:
            return None
        last = output.token_ids[-1]
        return last if last in self._telling.named_stop_ids else None


def _pass() -> None:
    """Nobody waits."""
