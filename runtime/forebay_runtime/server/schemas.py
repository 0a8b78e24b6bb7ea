"""The requests that the API takes, and what it says to fields it does not know.

Clients of OpenAI and vLLM send many fields. Those that cannot change the answer are ignored, those
set to what happens anyway are accepted, and all others are refused: an answer that silently lacks
what was asked for is worse than none.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from forebay_runtime.server.errors import BadRequest

MAX_STOPS = 16
MAX_PROMPTS = 256
MAX_COUNT = 2**31 - 1
"""Beyond any count of tokens; integers that take long to write out are refused by it."""

_IGNORED = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# Fields of OpenAI's and vLLM's APIs with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (),
    "best_of": (1,),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "priority": (0,),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "use_beam_search": (False,),
}


class Body(BaseModel):
    """A JSON object; numbers are not made from strings, and NaN is none."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


BodyT = TypeVar("BodyT", bound=Body)


def _check_stop(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise ValueError("must be a non-empty string or a list of such")
    if len(stops) > MAX_STOPS:
        raise ValueError(f"has {len(stops)} strings; at most {MAX_STOPS} are allowed")
    return stops


def _check_prompt(value: Any) -> Any:
    """Bring the four ways to write a prompt to one: a list of texts and token id lists."""
    prompts = [value] if isinstance(value, str) or _is_token_ids(value) else value
    if (
        not isinstance(prompts, list)
        or not prompts
        or not all(isinstance(prompt, str) or _is_token_ids(prompt) for prompt in prompts)
    ):
        raise ValueError(
            "must be a string, a list of token ids, or a non-empty list of either, and not empty"
        )
    if len(prompts) > MAX_PROMPTS:
        raise ValueError(f"has {len(prompts)} entries; at most {MAX_PROMPTS} are allowed")
    return prompts


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


class StreamOptions(Body):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class GenerationBody(Body):
    """What completions and chat have in common."""

    model: str | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=MAX_COUNT)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[str], BeforeValidator(_check_stop)] = Field(default_factory=list)
    max_tokens: int | None = Field(None, ge=1, le=MAX_COUNT)
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def includes_usage(self) -> bool:
        """Does the stream end with a chunk that counts tokens?"""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: Annotated[list[str | list[int]], BeforeValidator(_check_prompt)]


class Message(Body):
    """One turn of a chat; content is text, or a list of text parts."""

    role: str = Field(min_length=1)
    content: Any = None


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_COUNT)


class TokenizeBody(Body):
    """POST /tokenize: either a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1)
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]


def parse_body(model: type[BodyT], content: bytes) -> BodyT:
    """Read a request.

    Raises: BadRequest naming the field at fault.
    """
    try:
        body = model.model_validate_json(content)
    except ValidationError as exc:
        raise _to_bad_request(exc) from None
    _refuse_extra(body.model_extra or {}, "")
    if isinstance(body, GenerationBody) and body.stream_options is not None:
        if not body.stream:
            raise BadRequest(
                "stream_options is only allowed where stream is true", param="stream_options"
            )
        _refuse_extra(body.stream_options.model_extra or {}, "stream_options.")
    return body


def _to_bad_request(exc: ValidationError) -> BadRequest:
    error = exc.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "json_invalid":
        return BadRequest(f"The request's body is not valid JSON: {error['ctx']['error']}")
    if not path:
        return BadRequest("The request's body must be a JSON object")
    if error["type"] == "missing":
        return BadRequest(f"The field {path} is required", param=path)
    message = error["msg"].removeprefix("Value error, ")
    return BadRequest(f"The field {path} is not valid: {message}", param=path)


def _refuse_extra(extra: dict[str, Any], prefix: str) -> None:
    for name, value in extra.items():
        if value is None or name in _IGNORED:
            continue
        neutral = _NEUTRAL.get(name)
        if neutral is None:
            raise BadRequest(
                f"Unrecognized request argument supplied: {prefix}{name[:64]}",
                param=f"{prefix}{name[:64]}",
                code="unknown_parameter",
            )
        if not any(_is_same(value, allowed) for allowed in neutral):
            allowed_values = " or ".join(map(repr, neutral))
            hint = f", or give it as {allowed_values}" if neutral else ""
            raise BadRequest(
                f"{prefix}{name} is not supported by this server; leave it out{hint}",
                param=f"{prefix}{name}",
                code="unsupported_parameter",
            )


def _is_same(value: Any, allowed: Any) -> bool:
    # True == 1 in Python, but not in JSON.
    return isinstance(value, bool) == isinstance(allowed, bool) and bool(value == allowed)
