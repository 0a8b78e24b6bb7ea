"""Calls as Hermes and Qwen models write them: <tool_call>{"name": …, "arguments": {…}}</tool_call>.

Content may stand before, between and behind. What models get wrong about the end is forgiven: a
brace too many or too few, and no closing tag before the answer ends.
"""

from __future__ import annotations

from forebay_runtime.parsing.call_format import CallFormat, Phase, Spelling
from forebay_runtime.parsing.envelope import Envelope
from forebay_runtime.parsing.json_value import WHITESPACE
from forebay_runtime.parsing.sink import Sink
from forebay_runtime.structured import literal

BEGIN = "<tool_call>"
END = "</tool_call>"


class HermesCall:
    """A Reader of one call up to its closing tag."""

    def __init__(self, marker: str, names: frozenset[str], sink: Sink) -> None:
        """marker: the opening tag."""
        self.phase: Phase = "open"
        self._envelope = Envelope(marker, names, sink)
        self._is_ending = False
        self._behind: list[str] = []  # braces and whitespace before the closing tag
        self._tag = ""

    def read(self, text: str, start: int) -> int:
        """Read on from start."""
        position = start
        if not self._is_ending:
            position = self._envelope.read(text, position)
            if self._envelope.phase == "open":
                return position
            self._is_ending = not self._envelope.leftover(False) and (
                self._envelope.phase == "closed" or self._envelope.has_arguments
            )
            if not self._is_ending:
                self.phase = "broken"
        while self.phase == "open" and position < len(text):
            position = self._read_end(text[position], position)
        return position

    def leftover(self, has_ended: bool) -> str:
        """What stands where the closing tag should, unless the answer just ended there."""
        if not self._is_ending:
            return self._envelope.leftover(has_ended)
        return "" if has_ended else "".join([*self._behind, self._tag])

    def _read_end(self, char: str, position: int) -> int:
        if END.startswith(self._tag + char):
            self._tag += char
            if self._tag == END:
                self.phase = "closed"
        elif not self._tag and char in WHITESPACE + "}":
            self._behind.append(char)
        else:
            self.phase = "broken"
            return position
        return position + 1


HERMES = CallFormat(
    (BEGIN,),
    HermesCall,
    Spelling(
        "arguments",
        '"\\n"',
        before=f'{literal(BEGIN)} "\\n"',
        behind=f'"\\n" {literal(END)}',
    ),
    special_tokens=(BEGIN, END),
)
