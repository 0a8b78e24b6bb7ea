"""One answer being made: the engine's tokens become text, and every end is accounted for once.

Called by the endpoints. A Generation must be closed whatever happens; closing one that has not
ended aborts it in the engine before its next step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from forebay_runtime.request import Output, Request, TokenLogprobs
from forebay_runtime.server.engine_loop import EngineLoop
from forebay_runtime.server.errors import ApiError, RequestTimedOut
from forebay_runtime.server.metrics.request_record import RequestRecord
from forebay_runtime.server.queue_gate import QueueGate
from forebay_runtime.text.detokenizer import Detokenizer, TextRules
from forebay_runtime.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Token:
    """One token of an answer: where in the answer's text it begins, and how likely it was."""

    token_id: int
    offset: int
    """Characters that the tokens before it completed."""
    score: TokenLogprobs | None = None


@dataclass(frozen=True)
class Piece:
    """A part of an answer, or all of it: text, and the tokens that it took.

    The last piece has a finish_reason, stop or length; stop_reason is the stop string, or the stop
    token that the client named, which ended it. prompt_scores, where asked, come with the first.
    """

    text: str = ""
    tokens: tuple[Token, ...] = ()
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_scores: tuple[TokenLogprobs | None, ...] | None = None


def join(pieces: Iterable[Piece]) -> Piece:
    """One piece out of an answer's pieces in a row."""
    pieces = list(pieces)
    last = pieces[-1] if pieces else Piece()
    return Piece(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.tokens),
        last.finish_reason,
        last.stop_reason,
        next((p.prompt_scores for p in pieces if p.prompt_scores is not None), None),
    )


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
        timeout_seconds: float | None = None,
    ) -> None:
        """Submit the request."""
        self._workshop = workshop
        self._record = record
        self._request = request
        self._telling = telling
        self._detokenizer = Detokenizer(workshop.tokenizer.token_bytes, telling.rules)
        self._reason: str | None = None
        self._is_closed = False
        self._told = Piece()
        self._has_told = False
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.embedding: tuple[float, ...] = ()
        self._stream = workshop.loop.submit(request, timeout_seconds)

    @property
    def prompt_token_ids(self) -> Sequence[int]:
        """The prompt, as the engine has it."""
        return self._request.prompt_token_ids

    async def accepted(self) -> None:
        """Wait until the engine took the request, so that a refusal can still be a status.

        Raises: ApiError if it did not.
        """
        await self._next()

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer, piece by piece; the last has a finish_reason.

        A piece has text, or is the last: tokens without text are told with those after them.
        Raises: ApiError if the answer was cut.
        """
        while self._reason is None:
            self._told = join((self._told, self._read(await self._next())))
            if self._is_due():
                told, self._told, self._has_told = self._told, Piece(), True
                yield told

    def close(self) -> None:
        """Give up what has not ended, and count the request."""
        if self._is_closed:
            return
        self._is_closed = True
        self._workshop.loop.abort(self._request.request_id)
        self._workshop.gate.note_request_seconds(self._record.age_seconds)
        self._record.close(self._reason or "abort")

    def _is_due(self) -> bool:
        if self._reason is not None:
            return True
        is_enough = not self._has_told or len(self._told.tokens) >= self._telling.interval
        return is_enough and bool(self._told.text)

    async def _next(self) -> Output:
        try:
            output = await self._stream.next()
        except ApiError as error:
            self._reason = "timeout" if isinstance(error, RequestTimedOut) else "error"
            raise
        self._record.observe(output)
        return output

    def _read(self, output: Output) -> Piece:
        """Turn a step's output into a piece of the answer, up to where the answer ends."""
        self.num_cached_tokens = output.num_cached_tokens or self.num_cached_tokens
        self.embedding = output.embedding or self.embedding
        tokens, text = self._read_tokens(output)
        piece = Piece(text, tokens, prompt_scores=output.prompt_logprobs)
        if self._detokenizer.stopped_by is not None:
            self._reason = "stop"
            self._workshop.loop.abort(self._request.request_id)
            return replace(piece, finish_reason="stop", stop_reason=self._detokenizer.stopped_by)
        if output.finish_reason is None:
            return piece
        self._reason = output.finish_reason
        return replace(
            piece,
            text=text + self._detokenizer.flush(),
            finish_reason=self._reason,
            stop_reason=self._named_stop(output),
        )

    def _read_tokens(self, output: Output) -> tuple[tuple[Token, ...], str]:
        tokens, text = [], []
        for index, token_id in enumerate(output.token_ids):
            score = output.logprobs[index] if output.logprobs else None
            tokens.append(Token(token_id, self._detokenizer.num_chars, score))
            is_last = index == len(output.token_ids) - 1
            if not (is_last and self._is_silent_end(output, token_id)):
                text.append(self._detokenizer.feed(token_id))
            if self._detokenizer.stopped_by is not None:
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
