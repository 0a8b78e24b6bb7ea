"""Tool calls as OpenAI spells them: in pieces, and whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forebay_runtime.parsing import ToolCallDelta


def spell_call(call: ToolCallDelta) -> dict[str, Any]:
    """A piece of a call in a stream's delta."""
    function = {"arguments": call.arguments}
    if call.name is None:
        return {"index": call.index, "function": function}
    return {
        "index": call.index,
        "id": call.id,
        "type": "function",
        "function": {"name": call.name} | function,
    }


def join_calls(deltas: Iterable[ToolCallDelta]) -> list[dict[str, Any]]:
    """Whole calls out of their pieces, for a message."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        if delta.name is not None:
            function = {"name": delta.name, "arguments": ""}
            calls[delta.index] = {"id": delta.id, "type": "function", "function": function}
        calls[delta.index]["function"]["arguments"] += delta.arguments
    return list(calls.values())
