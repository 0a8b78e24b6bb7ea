"""From what a client sent to requests that the engine can take, or the reason why not.

Called by the endpoints. Everything is checked here; what passes cannot make a step fail.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay_runtime.chat_template import ChatTemplate, ChatTemplateError
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.server.errors import BadRequest
from forebay_runtime.server.schemas import GenerationBody, Message
from forebay_runtime.tokenizer import Tokenizer

_LONG_TEXT_CHARS = 2_000
"""Longer texts are tokenised on a thread: they would hold up every other client's stream."""
_MAX_ID_CHARS = 24
_ABSENT: tuple[Any, ...] = (None, [], {}, "")
"""Fields of a message that OpenAI's client writes out though they say nothing."""


@dataclass(frozen=True)
class Limits:
    """What the engine can hold."""

    max_model_len: int
    vocab_size: int


async def encode(
    tokenizer: Tokenizer, text: str, limits: Limits, add_special_tokens: bool = True
) -> list[int]:
    """Tokenise without holding up the loop, unless it is plain that the text is too long.

    Raises: BadRequest if even the longest tokens would be too many.
    """
    least = len(text) // tokenizer.longest_token_chars
    if least >= limits.max_model_len:
        raise BadRequest(
            f"This model's maximum context length is {limits.max_model_len} tokens, but the prompt "
            f"has more than {least}; shorten the prompt",
            code="context_length_exceeded",
        )
    if len(text) < _LONG_TEXT_CHARS:
        return tokenizer.encode(text, add_special_tokens)
    return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens)


async def render_messages(
    template: ChatTemplate, messages: Sequence[Message], add_generation_prompt: bool = True
) -> str:
    """Render a chat into a prompt, on a thread: a template is foreign code and may take long.

    Raises: BadRequest if a message has what a text model cannot read, or the template refuses.
    """

    def render() -> str:
        plain = [_to_plain(message, f"messages.{index}") for index, message in enumerate(messages)]
        return template.render(plain, add_generation_prompt)

    try:
        return await asyncio.to_thread(render)
    except ChatTemplateError as exc:
        raise BadRequest(str(exc), param="messages") from exc


def check_prompt(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    """Refuse prompts that are empty, too long, or no tokens of this model.

    Raises: BadRequest.
    """
    if not token_ids:
        raise BadRequest("The prompt is empty; give at least one token", param=param)
    if len(token_ids) >= limits.max_model_len:
        raise BadRequest(
            f"This model's maximum context length is {limits.max_model_len} tokens, but the prompt "
            f"has {len(token_ids)} and leaves no room for an answer; shorten the prompt",
            param=param,
            code="context_length_exceeded",
        )
    check_token_ids(token_ids, limits, param)


def check_token_ids(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    """Refuse ids that the model does not have.

    Raises: BadRequest.
    """
    for token_id in token_ids:
        if not 0 <= token_id < limits.vocab_size:
            raise BadRequest(
                f"The token id {str(token_id)[:_MAX_ID_CHARS]} is outside the model's vocabulary "
                f"of {limits.vocab_size}",
                param=param,
            )


@dataclass(frozen=True)
class TokenLimit:
    """How many tokens an answer may have: as asked by the field `param`, else `default`.

    default None is whatever room the prompt leaves.
    """

    asked: int | None
    param: str
    default: int | None

    def resolve(self, num_prompt_tokens: int, limits: Limits) -> int:
        """The number of tokens for one prompt.

        Raises: BadRequest if more was asked than there is room for.
        """
        room = limits.max_model_len - num_prompt_tokens
        if self.asked is None:
            return room if self.default is None else min(self.default, room)
        if self.asked > room:
            raise BadRequest(
                f"This model's maximum context length is {limits.max_model_len} tokens, but "
                f"{self.asked + num_prompt_tokens} were requested ({num_prompt_tokens} in the "
                f"prompt, {self.asked} for the answer); shorten the prompt or lower {self.param} "
                f"to {room}",
                param=self.param,
                code="context_length_exceeded",
            )
        return self.asked


def build_request(
    body: GenerationBody, token_ids: list[int], max_tokens: int, end_ids: frozenset[int]
) -> Request:
    """Build the engine's request from what was checked."""
    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        seed=body.seed,
        stop_token_ids=frozenset() if body.ignore_eos else end_ids,
        ignore_eos=bool(body.ignore_eos),
    )
    return Request(uuid.uuid4().hex, token_ids, sampling)


def _to_plain(message: Message, path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": _to_text(message.content, path)}
    for name, value in (message.model_extra or {}).items():
        if name == "name" and isinstance(value, str):
            plain[name] = value
        elif value not in _ABSENT:
            raise BadRequest(
                f"{path}.{name[:64]} is not supported by this server", param=f"{path}.{name[:64]}"
            )
    return plain


def _to_text(content: Any, path: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            _part_to_text(part, f"{path}.content.{index}") for index, part in enumerate(content)
        )
    raise BadRequest(f"{path}.content must be a string or a list of parts", param=f"{path}.content")


def _part_to_text(part: Any, path: str) -> str:
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise BadRequest(f"{path} must be an object with a type", param=path)
    if part["type"] != "text":
        raise BadRequest(
            f"{path} has the type {part['type'][:32]!r}; this model reads only parts of type "
            "'text'",
            param=path,
        )
    if not isinstance(part.get("text"), str):
        raise BadRequest(f"{path}.text must be a string", param=f"{path}.text")
    return str(part["text"])
