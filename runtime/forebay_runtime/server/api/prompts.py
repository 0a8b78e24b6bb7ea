"""From the ways to write a prompt to token ids: encoded, cut if so asked, and checked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from forebay_runtime.server.api.bodies.generation import PromptBody
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.errors import BadRequest

LONG_TEXT_CHARS = 2_000
"""Longer texts are tokenised on a thread: they would hold up every other client's stream."""


@dataclass(frozen=True)
class Prompt:
    """What the model is given; text is None where the client sent token ids."""

    token_ids: list[int]
    text: str | None = None


async def encode(context: Context, text: str, add_special_tokens: bool) -> list[int]:
    """Tokenise without holding up the loop, unless it is plain that the text is too long.

    Raises: BadRequest if even the longest tokens would be too many.
    """
    tokenizer, limits = context.tokenizer, context.limits
    least = len(text) // tokenizer.longest_token_chars
    if least > limits.max_model_len:
        raise BadRequest(
            f"This model's maximum context length is {limits.max_model_len} tokens, but the prompt "
            f"has more than {least} tokens; shorten the prompt",
            code="context_length_exceeded",
        )
    if len(text) < LONG_TEXT_CHARS:
        return tokenizer.encode(text, add_special_tokens)
    return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens)


async def read_prompt(
    context: Context, body: PromptBody, given: str | list[int], add_special_tokens: bool
) -> Prompt:
    """Turn one prompt into token ids, cut to what truncate_prompt_tokens keeps.

    Raises: BadRequest.
    """
    if isinstance(given, list):
        return Prompt(_truncate(context, body, given))
    token_ids = await encode(context, given, add_special_tokens)
    kept = _truncate(context, body, token_ids)
    return Prompt(kept, given if len(kept) == len(token_ids) else None)


def _truncate(context: Context, body: PromptBody, token_ids: list[int]) -> list[int]:
    """Keep the last tokens, or the first, as the body says; -1 keeps what the model can take.

    Raises: BadRequest if more were to be kept than the model can take.
    """
    asked, most = body.truncate_prompt_tokens, context.limits.max_model_len
    if asked is None:
        return token_ids
    if asked > most:
        raise BadRequest(
            f"truncate_prompt_tokens is {asked}: it should be at most the model's maximum context "
            f"length of {most}",
            param="truncate_prompt_tokens",
        )
    num_kept = most - 1 if asked == -1 else asked
    if body.truncation_side == "right":
        return token_ids[:num_kept]
    return token_ids[max(0, len(token_ids) - num_kept) :]
