"""POST /v1/completions: continue one prompt, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.answer import StreamForm, send_stream, send_whole
from forebay_runtime.server.api.bodies.completions import DEFAULT_MAX_TOKENS, CompletionBody
from forebay_runtime.server.api.context import FINGERPRINT, Context, Head
from forebay_runtime.server.api.echo import Echo
from forebay_runtime.server.api.limits import TokenLimit
from forebay_runtime.server.api.prompts import Prompt, read_prompt
from forebay_runtime.server.api.sampling import (
    Ask,
    Scores,
    build_requests,
    build_telling,
    check_num_logprobs,
)
from forebay_runtime.server.api.structure import choose_form, compile_form
from forebay_runtime.server.api.token_texts import TokenTexts
from forebay_runtime.server.api.usage import Usage
from forebay_runtime.server.event_stream import TextEvent
from forebay_runtime.server.piece import Piece, Token
from forebay_runtime.text.tokenizer import Tokenizer


async def create_completion(context: Context, request: Request) -> Response:
    """Continue prompts."""
    body = await context.read(CompletionBody, request)
    context.service.check_queue(len(body.prompt) * body.n)
    scores = _choose_scores(context, body)
    prompts = [
        await read_prompt(context, body, given, body.add_special_tokens) for given in body.prompt
    ]
    ask = Ask(
        TokenLimit(body.max_tokens, "max_tokens", DEFAULT_MAX_TOKENS),
        "prompt",
        scores,
        await compile_form(context, choose_form(body)),
    )
    requests = await build_requests(context, body, prompts, ask)
    head = context.head("cmpl-", body, request)
    wording = CompletionWording(context.tokenizer, body, prompts, scores, head)
    telling = build_telling(context, body, body.stream_interval)
    generations = context.service.submit(requests, telling, body.n, body.timeout)
    if not body.stream:
        return await send_whole(generations, wording, body.n, request.receive)
    stream = StreamForm(context.service.manners, body.includes_usage, body.counts_always)
    return await send_stream(generations, wording, body.n, stream, request.receive)


def _choose_scores(context: Context, body: CompletionBody) -> Scores:
    num_logprobs = check_num_logprobs(context, body.logprobs, "logprobs")
    asked = None if body.stream else body.prompt_logprobs
    num_prompt_logprobs = check_num_logprobs(context, asked, "prompt_logprobs")
    if body.echo and num_logprobs is not None:
        num_prompt_logprobs = max(num_logprobs, num_prompt_logprobs or 0)
    return Scores(num_logprobs, num_prompt_logprobs)


_UNASKED = {"token_ids": None, "prompt_token_ids": None, "prompt_logprobs": None}
"""Fields of a whole answer's choice that are null unless they were asked for."""


class CompletionWording:
    """How the choices of one request are spelled, n for each prompt in a row."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        body: CompletionBody,
        prompts: Sequence[Prompt],
        scores: Scores,
        head: Head,
    ) -> None:
        """prompts, scores: what body asked for. head: what all objects share."""
        self._body = body
        self._prompts = prompts
        self._scores = scores
        self._head = asdict(head) | FINGERPRINT | {"object": "text_completion"}
        self._texts = TokenTexts(tokenizer, body.return_tokens_as_token_ids)
        self._echoes = [Echo(p, tokenizer) for p in prompts] if body.echo else []
        self._has_begun = [False] * (len(prompts) * body.n)
        self._tells_tokens = scores.num_logprobs is not None or body.return_token_ids
        self._text_events: dict[int, TextEvent] = {}

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """Text and, in the last chunk, why it ended; the first has the prompt, if it is echoed."""
        opens, self._has_begun[index] = not self._has_begun[index], True
        return [self._head | {"choices": [self._choice(index, piece, opens)]}]

    def text_event(self, index: int, piece: Piece) -> bytes | None:
        """The event of a piece between the first and the last, if it tells no tokens."""
        if self._tells_tokens or not self._has_begun[index] or piece.finish_reason is not None:
            return None
        event = self._text_events.get(index)
        if event is None:
            event = TextEvent(lambda text: self.chunks(index, Piece(text))[0])
            self._text_events[index] = event
        return event.of(piece.text)

    def counts(self, usage: Usage) -> dict[str, Any]:
        """Token counts without a choice."""
        return self._head | {"choices": [], "usage": usage.to_body()}

    def whole(self, answers: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """One choice an answer, in the prompts' order."""
        choices = [
            _UNASKED | self._choice(index, answer, True) | self._prompt_logprobs(answer)
            for index, answer in enumerate(answers)
        ]
        return self._head | {"choices": choices, "usage": usage.to_body(), "service_tier": None}

    def _choice(self, index: int, piece: Piece, opens: bool) -> dict[str, Any]:
        echo = self._echoes[index // self._body.n] if self._echoes else None
        prefix = echo.text if echo is not None and opens else ""
        choice = {
            "index": index,
            "text": prefix + piece.text,
            "logprobs": self._logprobs(piece, echo, opens),
            "finish_reason": piece.finish_reason,
            "stop_reason": piece.stop_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = [token.token_id for token in piece.tokens]
            if opens:
                choice["prompt_token_ids"] = self._prompts[index // self._body.n].token_ids
        return choice

    def _logprobs(self, piece: Piece, echo: Echo | None, opens: bool) -> dict[str, Any] | None:
        num_top, tokens = self._scores.num_logprobs, piece.tokens
        if num_top is None:
            return None
        if echo is not None:
            num_chars = len(echo.text)
            shifted = (Token(t.token_id, t.offset + num_chars, t.score) for t in tokens)
            tokens = (*(echo.tokens(piece.prompt_scores or ()) if opens else ()), *shifted)
        return self._texts.completion_logprobs(tokens, num_top)

    def _prompt_logprobs(self, answer: Piece) -> dict[str, Any]:
        if self._body.prompt_logprobs is None:
            return {}
        num_top = self._scores.num_prompt_logprobs or 0
        return {"prompt_logprobs": self._texts.prompt_logprobs(answer.prompt_scores or (), num_top)}
