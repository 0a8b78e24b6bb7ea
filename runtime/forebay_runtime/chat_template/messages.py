"""Bring a chat to the form that templates expect; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""One thing by three names: templates read the first two."""
_MAX_ARGUMENT_CHARS = 1_000_000
"""Longer ones fit no context; to parse them would hold up every other thread."""


def prepare_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copy the messages: arguments of calls become objects, reasoning gets all of its names.

    messages: as OpenAI has them, each call with its function. Arguments that are no JSON object, as
    where a model's answer was cut within them, stay the text they are.
    """
    return [_prepare(message) for message in messages]


def _prepare(message: Mapping[str, Any]) -> dict[str, Any]:
    prepared = dict(message)
    calls = prepared.get("tool_calls")
    if calls:
        prepared["tool_calls"] = [_prepare_call(call) for call in calls]
    elif "tool_calls" in prepared:
        del prepared["tool_calls"]
    reasoning = next((text for name in _REASONING if (text := message.get(name)) is not None), None)
    if reasoning is not None:
        prepared = {"thinking": reasoning} | prepared | {"reasoning_content": reasoning}
    return prepared


def _prepare_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parse_arguments(arguments)
    return {**call, "function": {**function, "arguments": arguments or {}}}


def _parse_arguments(text: str) -> dict[str, Any] | str:
    if not text.strip():
        return {}
    if len(text) > _MAX_ARGUMENT_CHARS:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
