"""Answers run through a ChatParser in pieces, and put together as a client would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forebay_runtime.parsing import ChatParser, Function, ToolChoice, build_chat_parser, parse_tools

NAMES = ("weather", "get_time")


def build_tools(*names: str) -> tuple[Function, ...]:
    """Functions without a schema."""
    return parse_tools(
        [{"type": "function", "function": {"name": name}} for name in names], None
    ).functions


@dataclass
class Told:
    """What a client has at the end: calls as (name, arguments)."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list, compare=False)


def collect(parser: ChatParser, pieces: Iterable[str]) -> Told:
    """Feed the pieces and join the deltas.

    Raises: AssertionError if a call's deltas are out of order.
    """
    told = Told()
    deltas = [parser.feed(piece) for piece in pieces]
    for delta in [*deltas, parser.flush()]:
        told.reasoning += delta.reasoning
        told.content += delta.content
        for call in delta.tool_calls:
            if call.index == len(told.calls):
                assert call.name is not None and call.id is not None
                told.calls.append((call.name, ""))
                told.ids.append(call.id)
            else:
                assert call.index == len(told.calls) - 1
                assert call.name is None and call.id is None
            name, arguments = told.calls[call.index]
            told.calls[call.index] = (name, arguments + call.arguments)
    assert parser.has_tool_calls == bool(told.calls)
    return told


def parse(
    pieces: Sequence[str],
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    tool_choice: ToolChoice | None = None,
    prompt_tail: str = "",
) -> Told:
    """Run an answer through a parser that knows the functions NAMES."""
    choice = tool_choice or ToolChoice("auto")
    parser = build_chat_parser(
        tool_parser, reasoning_parser, build_tools(*NAMES), choice, prompt_tail
    )
    return collect(parser, pieces)


def cut(text: str, borders: Iterable[int]) -> list[str]:
    """The text in pieces that end at the borders."""
    places = [0, *sorted({border for border in borders if 0 < border < len(text)}), len(text)]
    return [text[start:end] for start, end in zip(places, places[1:], strict=False)]
