"""The parser of one chat answer: reasoning first, then content and tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from forebay_runtime.parsing.delta import Delta
from forebay_runtime.parsing.tools import Function, ToolChoice


class ChatParser:
    """Takes an answer's text piece by piece; one for each answer."""

    has_tool_calls = False
    """Was there any? Then the answer's finish_reason is "tool_calls" instead of "stop"."""

    def feed(self, text: str) -> Delta:
        """What this piece adds; what may still become a marker is held back."""
        return Delta(content=text)

    def flush(self) -> Delta:
        """What was held back, at the end of the answer."""
        return Delta()


def build_chat_parser(
    tool_parser: str | None,
    reasoning_parser: str | None,
    tools: Sequence[Function],
    tool_choice: ToolChoice,
    prompt_tail: str,
) -> ChatParser:
    """Build the parser for one answer.

    tool_parser, reasoning_parser: as choose_tool_parser and choose_reasoning_parser gave them.
    prompt_tail: the rendered prompt's last characters (a few hundred), because a template may have
    opened the reasoning itself.
    """
    return ChatParser()
