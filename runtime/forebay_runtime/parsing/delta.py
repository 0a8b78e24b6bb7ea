"""What one piece of a model's text adds to a chat answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToolCallDelta:
    """A piece of one tool call.

    index counts the answer's calls from 0. id and name come with a call's first delta and with no
    other. arguments is a fragment: joined over a call's deltas, it is the JSON text of an object.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True)
class Delta:
    """What is new: text thought, text said, and pieces of calls in the order in which they came."""

    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        """Is there anything to tell the client?"""
        return bool(self.reasoning or self.content or self.tool_calls)

    def __add__(self, other: Delta) -> Delta:
        """Both, this one first."""
        return Delta(
            self.reasoning + other.reasoning,
            self.content + other.content,
            self.tool_calls + other.tool_calls,
        )
