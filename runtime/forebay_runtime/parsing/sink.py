"""Where parsers put what they read: the deltas of one answer."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from dataclasses import replace

from forebay_runtime.parsing.delta import Delta, ToolCallDelta
from forebay_runtime.parsing.json_value import WHITESPACE

_ALPHANUMERIC = string.ascii_letters + string.digits


def make_call_id() -> str:
    """An id as OpenAI's look."""
    return f"call_{secrets.token_hex(12)}"


def make_mistral_id() -> str:
    """Nine letters and digits: Mistral's templates refuse anything else."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


class Sink:
    """Collects content and calls until they are taken.

    What only separates calls (whitespace, and after a call the format's separators) is held until
    it is known to: it is content if content follows.
    """

    def __init__(self, make_id: Callable[[], str], separators: str = "") -> None:
        """separators: characters that stand between calls, besides whitespace."""
        self.num_calls = 0
        self._make_id = make_id
        self._separators = WHITESPACE + separators
        self._held: list[str] = []
        self._is_held_open = True  # at the beginning, and behind a call
        self._content: list[str] = []
        self._calls: dict[int, ToolCallDelta] = {}
        self._arguments: dict[int, list[str]] = {}

    def say(self, text: str) -> None:
        """Take content."""
        if not text:
            return
        if self._is_held_open:
            ignorable = self._separators if self.num_calls else WHITESPACE
            rest = text.lstrip(ignorable)
            self._held.append(text[: len(text) - len(rest)])
            if not rest:
                return
            self._release()
            text = rest
        self._content.append(text)

    def open_call(self, name: str) -> None:
        """Begin the next call."""
        self._held.clear()
        self._is_held_open = True
        self._calls[self.num_calls] = ToolCallDelta(self.num_calls, self._make_id(), name)
        self.num_calls += 1

    def argue(self, fragment: str) -> None:
        """Go on with the arguments of the call that was opened last."""
        if fragment:
            index = self.num_calls - 1
            self._calls.setdefault(index, ToolCallDelta(index))
            self._arguments.setdefault(index, []).append(fragment)

    def close(self) -> None:
        """The answer ended: what was held is content, unless there were calls."""
        if not self.num_calls:
            self._release()

    def take(self) -> Delta:
        """What came since the last time, one delta a call."""
        for index, fragments in self._arguments.items():
            self._calls[index] = replace(self._calls[index], arguments="".join(fragments))
        delta = Delta("", "".join(self._content), tuple(self._calls.values()))
        self._content, self._calls, self._arguments = [], {}, {}
        return delta

    def _release(self) -> None:
        self._content.extend(self._held)
        self._held.clear()
        self._is_held_open = False
