"""The types that fields of several bodies have; each check says what is allowed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

MAX_STOPS = 4
"""OpenAI's and vLLM's limit."""
MAX_STOP_CHARS = 1_024
MAX_CHOICES = 1_024
MAX_N = 128
"""OpenAI's limit."""
MAX_COUNT = 2**31 - 1
"""Beyond any count of tokens; integers that take long to write out are refused by it."""
MAX_BAD_WORDS = 1_000
MAX_SECONDS = 1e7
MAX_ID_CHARS = 256
MAX_SALT_CHARS = 128
_MOST_WHOLE = 2.0**63
_SALT_FORBIDS = frozenset("@/\\\x00")


def to_whole(value: Any) -> Any:
    """A whole number that was written as 1.0, as an integer: JSON has one kind of number."""
    is_whole = type(value) is float and abs(value) <= _MOST_WHOLE and value.is_integer()
    return int(value) if is_whole else value


def _to_wholes(value: Any) -> Any:
    if isinstance(value, list) and float in set(map(type, value)):
        return [to_whole(each) for each in value]
    return value


def _check_stop(value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise ValueError("it must be a non-empty string or a list of such")
    if len(stops) > MAX_STOPS:
        raise ValueError(f"it has {len(stops)} strings; at most {MAX_STOPS} are allowed")
    longest = max(map(len, stops), default=0)
    if longest > MAX_STOP_CHARS:
        raise ValueError(
            f"a string of it has {longest} characters; at most {MAX_STOP_CHARS} are allowed"
        )
    return stops


def _check_prompts(value: Any) -> list[str | list[int]]:
    """Bring the four ways to write a prompt to one: a list of texts and token id lists."""
    value = _to_wholes(value)
    prompts = [value] if isinstance(value, str) or _is_token_ids(value) else value
    if isinstance(prompts, list):
        prompts = [_to_wholes(prompt) for prompt in prompts]
    if (
        not isinstance(prompts, list)
        or not prompts
        or not all(isinstance(prompt, str) or _is_token_ids(prompt) for prompt in prompts)
    ):
        raise ValueError(
            "it must be a string, a list of token ids, or a list of either, and not empty"
        )
    if len(prompts) > MAX_CHOICES:
        raise ValueError(f"it has {len(prompts)} entries; at most {MAX_CHOICES} are allowed")
    return prompts


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {int}


def _check_logit_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError("it must be an object of token ids, as strings, and numbers")
    biases = {}
    for key, bias in value.items():
        if not key.isascii() or not key.isdigit() or len(key) > len(str(MAX_COUNT)):
            raise ValueError(f"its key {key[:64]!r} is no token id")
        if type(bias) not in (int, float) or not abs(bias) < float("inf"):
            raise ValueError(f"its value for the token {key} must be a number from -100 to 100")
        biases[int(key)] = min(100.0, max(-100.0, float(bias)))
    return biases


def _check_bad_words(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(w, str) and w for w in value):
        raise ValueError("it must be a list of non-empty strings")
    if len(value) > MAX_BAD_WORDS:
        raise ValueError(f"it has {len(value)} strings; at most {MAX_BAD_WORDS} are allowed")
    if any(len(word) > MAX_STOP_CHARS for word in value):
        raise ValueError(f"a string of it is longer than the {MAX_STOP_CHARS} characters allowed")
    return value


def _check_salt(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SALT_CHARS:
        raise ValueError(f"it must be a string of 1 to {MAX_SALT_CHARS} characters")
    if _SALT_FORBIDS.intersection(value):
        raise ValueError("it must be without '@', '/', '\\' and NUL")
    return value


_TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        _TOKEN_IDS,
        {"type": "array", "items": {"anyOf": [{"type": "string"}, _TOKEN_IDS]}, "minItems": 1},
    ]
}
_STOP_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS}
_STOP_SCHEMA = {
    "anyOf": [_STOP_TEXT, {"type": "array", "items": _STOP_TEXT, "maxItems": MAX_STOPS}]
}
_BIAS_SCHEMA = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]{1,10}$"},
    "additionalProperties": {"type": "number"},
}
_WORDS_SCHEMA = {"type": "array", "items": _STOP_TEXT, "maxItems": MAX_BAD_WORDS}

Stops = Annotated[list[str], BeforeValidator(_check_stop), WithJsonSchema(_STOP_SCHEMA)]
Prompts = Annotated[
    list[str | list[int]], BeforeValidator(_check_prompts), WithJsonSchema(_PROMPT_SCHEMA)
]
LogitBias = Annotated[
    dict[int, float], BeforeValidator(_check_logit_bias), WithJsonSchema(_BIAS_SCHEMA)
]
BadWords = Annotated[list[str], BeforeValidator(_check_bad_words), WithJsonSchema(_WORDS_SCHEMA)]
Salt = Annotated[str, BeforeValidator(_check_salt)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=MAX_COUNT)]], BeforeValidator(_to_wholes)]
