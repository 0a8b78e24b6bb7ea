"""Bring a chat to the form that templates expect; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forebay_runtime.chat_template.meter import ChatTemplateError
from forebay_runtime.quoting import show

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""One thing by three names: templates read the first two."""


def prepare_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copy the messages: arguments of calls become objects, reasoning gets all of its names.

    messages: as OpenAI has them, each call with its function.
    Raises: ChatTemplateError if a call's arguments are no JSON object.
    """
    return [_prepare(message, f"messages.{index}") for index, message in enumerate(messages)]


def _prepare(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    prepared = dict(message)
    calls = prepared.get("tool_calls")
    if calls:
        prepared["tool_calls"] = [
            _prepare_call(call, f"{path}.tool_calls.{index}") for index, call in enumerate(calls)
        ]
    elif "tool_calls" in prepared:
        del prepared["tool_calls"]
    reasoning = next((text for name in _REASONING if (text := message.get(name)) is not None), None)
    if reasoning is not None:
        prepared = {"thinking": reasoning} | prepared | {"reasoning_content": reasoning}
    return prepared


def _prepare_call(call: Mapping[str, Any], path: str) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parse_arguments(arguments, f"{path}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments or {}}}


def _parse_arguments(text: str, path: str) -> Any:
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ChatTemplateError(f"{path} must be the JSON text of an object, not {show(text)}")
    return value
