"""How a chat's answers are read: which parser takes calls and thoughts out of their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forebay_runtime.parsing import ChatParser, Tools, build_chat_parser, list_markers, parse_tools
from forebay_runtime.server.api.context import Context
from forebay_runtime.server.api.prompts import Prompt
from forebay_runtime.server.errors import BadRequest

_TAIL_CHARS = 400
"""More than any template writes behind the last message."""
_USUAL_TOOL_PARSER = "hermes"
"""For models whose template knows of no tools, so that the client must have told them."""


@dataclass(frozen=True)
class Reading:
    """What the parser of each answer to one chat is made of."""

    tools: Tools
    tool_parser: str | None
    reasoning_parser: str | None
    prompt_tail: str
    """The rendered prompt's end: templates may open the reasoning themselves."""

    @classmethod
    def of(cls, context: Context, tools: Tools, prompt: Prompt) -> Reading:
        """How this model's answers are read."""
        tail = (prompt.text or "")[-_TAIL_CHARS:]
        tool_parser = context.tool_parser
        if tool_parser is None and tools.choice.kind == "auto":
            tool_parser = _USUAL_TOOL_PARSER
        return cls(tools, tool_parser, context.reasoning_parser, tail)

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens that the parser must see, though clients do not."""
        is_calling = self.tools.functions and self.tools.choice.kind != "none"
        return list_markers(self.tool_parser if is_calling else None, self.reasoning_parser)

    def build_parser(self) -> ChatParser:
        """A parser for one answer."""
        tools = self.tools
        return build_chat_parser(
            self.tool_parser,
            self.reasoning_parser,
            tools.functions,
            tools.choice,
            self.prompt_tail,
        )


def read_tools(tools: Any, tool_choice: Any = None) -> Tools:
    """The tools of a chat and how to choose among them.

    Raises: BadRequest.
    """
    try:
        return parse_tools(tools, tool_choice)
    except ValueError as exc:
        param = "tool_choice" if str(exc).startswith("tool_choice") else "tools"
        raise BadRequest(str(exc), param=param) from None
