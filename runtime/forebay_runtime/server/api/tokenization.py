"""/tokenize and /detokenize: text to token ids, and back; /tokenizer_info: what both go by."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from forebay_runtime.server.api.bodies.tokens import DetokenizeBody, TokenizeBody
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.limits import check_token_ids
from forebay_runtime.server.api.prompts import LONG_TEXT_CHARS, encode
from forebay_runtime.server.api.reading import read_tools
from forebay_runtime.server.api.rendering import render_text
from forebay_runtime.server.errors import build_json_response


async def tokenize(context: Context, request: Request) -> Response:
    """The token ids of a prompt, or of a rendered chat."""
    body = await context.read(TokenizeBody, request)
    text, adds_special = body.prompt, body.add_special_tokens
    if text is None:
        text = await render_text(context, body, read_tools(body.tools))
    elif adds_special is None:
        adds_special = True
    ids = await encode(context, text, bool(adds_special))
    texts = [context.tokenizer.token_text(id_) for id_ in ids] if body.return_token_strs else None
    return build_json_response(
        {
            "count": len(ids),
            "max_model_len": context.limits.max_model_len,
            "tokens": ids,
            "token_strs": texts,
        }
    )


async def detokenize(context: Context, request: Request) -> Response:
    """The text of token ids, special tokens written out."""
    body = await context.read(DetokenizeBody, request)
    check_token_ids(body.tokens, context.limits, "tokens")
    decode, tokens = context.tokenizer.decode, body.tokens
    is_long = len(tokens) > LONG_TEXT_CHARS
    text = await asyncio.to_thread(decode, tokens) if is_long else decode(tokens)
    return build_json_response({"prompt": text})


async def tokenizer_info(context: Context, request: Request) -> Response:
    """The special tokens and the chat template, for clients that have no tokenizer of their own."""
    names, template = context.tokenizer.special.names, context.template.source
    tokens = {name: names.get(name) for name in ("bos_token", "eos_token")}
    return build_json_response(tokens | {"chat_template": template})
