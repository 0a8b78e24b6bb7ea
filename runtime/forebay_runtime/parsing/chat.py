"""The parser of one chat answer: reasoning first, then content and tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forebay_runtime.parsing.delta import Delta
from forebay_runtime.parsing.formats import FORMATS
from forebay_runtime.parsing.reader import CallParser
from forebay_runtime.parsing.reasoning import ReasoningSplitter, choose_start
from forebay_runtime.parsing.tools import Function, ToolChoice


class ChatParser:
    """Takes an answer's text piece by piece; one for each answer.

    Joined over all pieces, what it gives is the same however the text was cut.
    """

    def __init__(self, reasoning: ReasoningSplitter | None, calls: CallParser | None) -> None:
        """Either is None where the answer has nothing of the kind."""
        self._reasoning = reasoning
        self._calls = calls

    @property
    def is_plain(self) -> bool:
        """Is all text content, as it comes?"""
        return self._reasoning is None and self._calls is None

    @property
    def has_tool_calls(self) -> bool:
        """Was there any? Then the answer's finish_reason is "tool_calls" instead of "stop"."""
        return self._calls is not None and self._calls.num_calls > 0

    @property
    def reasoning_span(self) -> range | None:
        """Which of the answer's characters are thoughts, None where there are none to be told."""
        return None if self._reasoning is None else self._reasoning.span

    def feed(self, text: str) -> Delta:
        """What this piece adds; what may still become a marker is held back."""
        thought, said = ("", text) if self._reasoning is None else self._reasoning.feed(text)
        return replace(self._read_calls(said), reasoning=thought)

    def flush(self) -> Delta:
        """What was held back, at the end of the answer."""
        thought, said = ("", "") if self._reasoning is None else self._reasoning.flush()
        delta = replace(self._read_calls(said), reasoning=thought)
        return delta if self._calls is None else delta + self._calls.flush()

    def _read_calls(self, text: str) -> Delta:
        return Delta(content=text) if self._calls is None else self._calls.feed(text)


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
    reasoning = None
    if reasoning_parser is not None:
        reasoning = ReasoningSplitter(choose_start(prompt_tail, reasoning_parser))
    return ChatParser(reasoning, _build_call_parser(tool_parser, tools, tool_choice))


def _build_call_parser(
    tool_parser: str | None, tools: Sequence[Function], tool_choice: ToolChoice
) -> CallParser | None:
    if tool_choice.kind == "none" or not tools:
        return None
    if tool_parser is None and not tool_choice.is_forced:
        return None
    return CallParser(FORMATS[tool_parser], frozenset(function.name for function in tools))
