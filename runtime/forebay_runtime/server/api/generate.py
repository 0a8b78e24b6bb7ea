"""POST /generate: vLLM's bare endpoint; each text is a prompt and what was generated after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.answer import StreamForm, send_stream, send_whole
from forebay_runtime.server.api.bodies.completions import DEFAULT_MAX_TOKENS, GenerateBody
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.echo import Echo
from forebay_runtime.server.api.limits import TokenLimit
from forebay_runtime.server.api.prompts import read_prompt
from forebay_runtime.server.api.sampling import Ask, build_requests, build_telling
from forebay_runtime.server.api.structure import choose_form, compile_form
from forebay_runtime.server.api.usage import Usage
from forebay_runtime.server.piece import Piece


async def generate(context: Context, request: Request) -> Response:
    """Continue prompts."""
    body = await context.read(GenerateBody, request)
    context.service.check_queue(len(body.prompt) * body.n)
    prompts = [
        await read_prompt(context, body, given, body.add_special_tokens) for given in body.prompt
    ]
    limit = TokenLimit(body.max_tokens, "max_tokens", DEFAULT_MAX_TOKENS)
    constrain = await compile_form(context, choose_form(body))
    requests = await build_requests(
        context, body, prompts, Ask(limit, "prompt", constrain=constrain)
    )
    echoes = [Echo(prompt, context.tokenizer).text for prompt in prompts for _ in range(body.n)]
    telling = build_telling(context, body)
    generations = context.service.submit(requests, telling, body.n, body.timeout)
    wording = GenerateWording(echoes)
    if not body.stream:
        return await send_whole(generations, wording, body.n, request.receive)
    stream = StreamForm(context.service.manners)
    return await send_stream(generations, wording, body.n, stream, request.receive)


class GenerateWording:
    """All texts as far as they have come, each time."""

    def __init__(self, texts: Sequence[str]) -> None:
        """texts: what each answer continues."""
        self._texts = list(texts)

    def chunks(self, index: int, piece: Piece) -> list[dict[str, Any]]:
        """The texts with this piece."""
        self._texts[index] += piece.text
        return [{"text": list(self._texts)}]

    def text_event(self, index: int, piece: Piece) -> None:
        """None: each event says more than the piece."""

    def counts(self, usage: Usage) -> dict[str, Any]:
        """The texts as they are: nothing is counted here."""
        return {"text": list(self._texts)}

    def whole(self, answers: Sequence[Piece], usage: Usage) -> dict[str, Any]:
        """The texts."""
        return {
            "text": [text + answer.text for text, answer in zip(self._texts, answers, strict=True)]
        }
