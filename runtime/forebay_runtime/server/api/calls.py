"""Tool calls between the parser and the client: how many are let through, and whole ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forebay_runtime.parsing import ToolCallDelta


def keep_calls(calls: Iterable[ToolCallDelta], takes_many: bool) -> tuple[ToolCallDelta, ...]:
    """All calls of an answer, or the first alone; takes_many: the body's parallel_tool_calls."""
    return tuple(call for call in calls if takes_many or call.index == 0)


def join_calls(deltas: Iterable[ToolCallDelta]) -> list[dict[str, Any]]:
    """Whole calls out of their pieces, as OpenAI spells them in a message."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        if delta.name is not None:
            function = {"name": delta.name, "arguments": ""}
            calls[delta.index] = {"id": delta.id, "type": "function", "function": function}
        calls[delta.index]["function"]["arguments"] += delta.arguments
    return list(calls.values())
