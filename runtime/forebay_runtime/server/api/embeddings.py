"""POST /v1/embeddings: turn texts into vectors."""

from __future__ import annotations

import base64
from array import array
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.request import SamplingParams
from forebay_runtime.server.api.answer import close_all, collect, nobody, until_gone
from forebay_runtime.server.api.bodies.embeddings import EmbeddingBody
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.limits import check_prompt
from forebay_runtime.server.api.prompts import read_prompt
from forebay_runtime.server.api.sampling import build_request
from forebay_runtime.server.api.usage import count_usage
from forebay_runtime.server.errors import BadRequest, build_json_response
from forebay_runtime.server.generation import Generation, Telling

_NOTHING_SAMPLED = SamplingParams(max_tokens=0)


async def create_embeddings(context: Context, request: Request) -> Response:
    """Turn texts into vectors of unit length."""
    body = await context.read(EmbeddingBody, request)
    _check_dimensions(body, context.limits.embedding_size)
    context.service.check_queue(len(body.input))
    prompts = [
        await read_prompt(context, body, given, body.add_special_tokens) for given in body.input
    ]
    for prompt in prompts:
        check_prompt(prompt.token_ids, context.limits, "input", num_least=0)
    requests = [build_request(body, prompt, _NOTHING_SAMPLED) for prompt in prompts]
    for each in requests:
        each.pooling = body.pooling
    generations = context.service.submit(requests, Telling(), 1, body.timeout)
    try:
        if await until_gone(collect(generations), request.receive) is None:
            return nobody()
        head = context.head("embd-", body, request)
        return build_json_response(asdict(head) | _spell(body, generations))
    finally:
        close_all(generations)


def _check_dimensions(body: EmbeddingBody, size: int) -> None:
    if body.dimensions not in (None, size):
        raise BadRequest(
            f"dimensions is {body.dimensions}: this model's vectors have {size}, and cannot be cut",
            param="dimensions",
        )


def _spell(body: EmbeddingBody, generations: list[Generation]) -> dict[str, Any]:
    usage = count_usage(generations, 1)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _encode(body, each.embedding)}
            for index, each in enumerate(generations)
        ],
        "usage": {"prompt_tokens": usage.num_prompt, "total_tokens": usage.num_prompt},
    }


def _encode(body: EmbeddingBody, vector: tuple[float, ...]) -> list[float] | str:
    if body.encoding_format == "float":
        return list(vector)
    return base64.b64encode(array("f", vector).tobytes()).decode()
