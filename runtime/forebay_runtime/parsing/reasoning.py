"""Split an answer into what the model thinks and what it says, at <think> and </think>.

Text within either passes unchanged, line breaks included, as vLLM's parsers for these models do;
the tags are dropped, and so is whitespace in front of the opening one. Reasoning that never ends
is an answer that was cut off: all of it is reasoning.
"""

from __future__ import annotations

import re
from typing import Literal

from forebay_runtime.parsing.json_value import WHITESPACE
from forebay_runtime.parsing.reader import find_marker

BEGIN = "<think>"
END = "</think>"

_TURN = re.compile(r"<[|｜]|\[/?INST\]|<(?:start|end)_of_turn>|</s>")
"""Where one turn ends and the next begins, in the families that there are."""

State = Literal["start", "thinking", "speaking"]


def choose_start(prompt_tail: str, reasoning_parser: str) -> State:
    """Where an answer begins that follows the prompt.

    A template may have opened the reasoning, or have opened and closed it at once (then there is
    to be none), and a message that is to be continued may have. What stands in an earlier turn does
    not count.
    """
    opened, closed = prompt_tail.rfind(BEGIN), prompt_tail.rfind(END)
    last = max(opened, closed)
    if last >= 0 and not _TURN.search(prompt_tail, last):
        return "thinking" if opened > closed else "speaking"
    # Models of the first kind think without an opening tag.
    return "thinking" if reasoning_parser == "deepseek_r1" else "start"


class ReasoningSplitter:
    """Takes text in pieces and gives (reasoning, content)."""

    def __init__(self, start: State) -> None:
        """start: as choose_start gave it."""
        self._state: State = start
        self._may_open = start != "speaking"  # nothing but whitespace came yet
        self._spaces: list[str] = []
        self._rest = ""
        self._num_fed = 0
        self._begin = 0
        self._end: int | None = 0 if start == "speaking" else None

    @property
    def span(self) -> range:
        """Which of the answer's characters are thoughts, their tags left out; so far."""
        if self._state == "start":
            return range(0)
        end = self._num_fed - len(self._rest) if self._end is None else self._end
        return range(self._begin, end)

    @property
    def is_over(self) -> bool:
        """Is whatever follows content?"""
        return self._state == "speaking"

    def feed(self, text: str) -> tuple[str, str]:
        """What this piece adds to either."""
        self._num_fed += len(text)
        text, self._rest = self._rest + text, ""
        if self._may_open:
            text = self._read_opening(text)
        if self._state == "speaking" or not text:
            return "", text
        found, marker = find_marker(text, 0, (END,))
        if marker is None:
            self._rest = text[found:]
            return text[:found], ""
        self._state = "speaking"
        self._end = self._num_fed - len(text) + found
        return text[:found], text[found + len(END) :]

    def flush(self) -> tuple[str, str]:
        """What was held back."""
        rest, self._rest = "".join([*self._spaces, self._rest]), ""
        return (rest, "") if self._state == "thinking" else ("", rest)

    def _read_opening(self, text: str) -> str:
        """Drop an opening tag at the beginning; hold what may become one."""
        begin = text.lstrip(WHITESPACE)
        self._spaces.append(text[: len(text) - len(begin)])
        if BEGIN.startswith(begin) and begin != BEGIN:
            self._rest = begin
            return ""
        self._may_open = False
        spaces = "".join(self._spaces)
        self._spaces.clear()
        if begin.startswith(BEGIN):
            self._state = "thinking"
            self._begin = self._num_fed - len(begin) + len(BEGIN)
            return begin[len(BEGIN) :]
        if self._state == "start":
            self._state, self._end = "speaking", 0
        return spaces + begin
