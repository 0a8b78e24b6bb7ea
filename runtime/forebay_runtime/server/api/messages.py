"""A chat's messages as templates take them: plain objects whose content is one text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forebay_runtime.quoting import show
from forebay_runtime.server.api.bodies.chat import Message
from forebay_runtime.server.errors import BadRequest

_NOTHING: tuple[Any, ...] = (None, [], {}, "")
"""Values of fields that OpenAI's client writes out though they say nothing."""
_UNREADABLE = ("audio", "function_call")
_TEXT_FIELDS = ("name", "tool_call_id", "refusal", "reasoning", "reasoning_content")
KNOWN_FIELDS = frozenset((*_TEXT_FIELDS, *_UNREADABLE, "tool_calls"))
"""What a message may have beside role and content; all else is the template's business."""


def to_plain(messages: Sequence[Message], knows_developer: bool) -> list[dict[str, Any]]:
    """Bring messages to the form that templates are written for.

    knows_developer: the template has that role; else it is the system's, as it was before.
    Raises: BadRequest naming what a text model cannot read.
    """
    plain = [_to_plain(message, f"messages.{index}") for index, message in enumerate(messages)]
    for message in plain:
        if message["role"] == "developer" and not knows_developer:
            message["role"] = "system"
    return plain


def _to_plain(message: Message, path: str) -> dict[str, Any]:
    if message.content is None and message.role != "assistant":
        raise BadRequest(
            f"The field {path}.content is required: only the assistant's messages may have none",
            param=f"{path}.content",
        )
    plain: dict[str, Any] = {"role": message.role, "content": to_text(message.content, path)}
    for name, value in (message.model_extra or {}).items():
        field = f"{path}.{name[:64]}"
        if name in _TEXT_FIELDS:
            if not isinstance(value, str):
                raise BadRequest(f"{field} is {show(value)}: it must be a string", param=field)
            plain[name] = value
        elif name == "tool_calls":
            plain[name] = _check_calls(value, field)
        elif name in _UNREADABLE and value not in _NOTHING:
            raise BadRequest(
                f"{field} is {show(value)}, which this server does not support; leave it out",
                param=field,
            )
        else:  # the template's business
            plain[name] = value
    return plain


def to_text(content: str | list[dict[str, Any]] | None, path: str) -> str:
    """The text of a message, its parts one below the other.

    Raises: BadRequest naming a part that is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(
        _part_to_text(part, f"{path}.content.{index}") for index, part in enumerate(content)
    )


def _part_to_text(part: Mapping[str, Any], path: str) -> str:
    kind = part.get("type")
    if kind not in ("text", "refusal"):
        raise BadRequest(
            f"{path}.type is {show(kind)}: this model reads only parts of the type 'text'",
            param=f"{path}.type",
        )
    if not isinstance(part.get(kind), str):
        raise BadRequest(f"{path}.{kind} must be a string", param=f"{path}.{kind}")
    return str(part[kind])


def _check_calls(calls: Any, path: str) -> list[Any]:
    if not isinstance(calls, list):
        raise BadRequest(f"{path} is {show(calls)}: it must be a list of calls", param=path)
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(
                f"{path}.{index} is {show(call)}: it must be an object with a function that has a "
                "name",
                param=f"{path}.{index}",
            )
    return calls
