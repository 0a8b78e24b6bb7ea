"""Read several calls written as a JSON list: [{"name": …, "arguments": {…}}, …]."""

from __future__ import annotations

from forebay_runtime.parsing.call_format import CallFormat, Phase, Spelling
from forebay_runtime.parsing.envelope import Envelope
from forebay_runtime.parsing.json_value import WHITESPACE
from forebay_runtime.parsing.sink import Sink

_MAX_SPACES = 256


class CallList:
    """A Reader of one list, from behind its opening bracket."""

    def __init__(self, lead: str, names: frozenset[str], sink: Sink) -> None:
        """lead: the bracket and whatever belongs to the list before it."""
        self.phase: Phase = "open"
        self._names = names
        self._sink = sink
        self._call: Envelope | None = Envelope(lead, names, sink)
        self._behind = ""  # what followed the last call

    def read(self, text: str, start: int) -> int:
        """Read on from start."""
        position = start
        while self.phase == "open" and position < len(text):
            if self._call is None:
                position = self._read_between(text[position], position)
            else:
                position = self._read_call(self._call, text, position)
        return position

    def leftover(self, has_ended: bool) -> str:
        """What has become no call."""
        return self._behind if self._call is None else self._call.leftover(has_ended)

    def _read_call(self, call: Envelope, text: str, position: int) -> int:
        position = call.read(text, position)
        if call.phase == "closed":
            self._call = None
        elif call.phase == "broken":
            self.phase = "broken"
        return position

    def _read_between(self, char: str, position: int) -> int:
        if char in WHITESPACE and len(self._behind) < _MAX_SPACES:
            self._behind += char
        elif char == ",":
            self._call = Envelope(self._behind + char, self._names, self._sink)
            self._behind = ""
        elif char == "]":
            self.phase = "closed"
        else:
            self.phase = "broken"
            return position
        return position + 1


CALL_LIST = CallFormat(("[",), CallList, Spelling("parameters", '", "', '"["', '"]"'))
"""What an answer that must be calls is made to be where the model has no format, as vLLM has it."""
