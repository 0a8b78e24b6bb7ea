"""Read one call written as an object: {"name": "f", "arguments": {…}}.

Used by every format that writes calls as JSON. The call is opened as soon as its name is known and
its arguments have begun; from then on they pass through as they are written. Until then the text
is kept, to be given back should it be no call.
"""

from __future__ import annotations

import json
from typing import Literal

from forebay_runtime.parsing.call_format import Phase
from forebay_runtime.parsing.json_value import WHITESPACE, JsonValue
from forebay_runtime.parsing.sink import Sink

MAX_HELD_CHARS = 65_536
"""What has not become a call by then is content."""

_ARGUMENTS = ("arguments", "parameters")

Expects = Literal["{", "key or }", "key", ":", "value", ", or }"]
Role = Literal["key", "name", "arguments", "other"]


class Envelope:
    """A Reader of one object."""

    def __init__(
        self, lead: str, names: frozenset[str], sink: Sink, needs_arguments: bool = False
    ) -> None:
        """lead: text in front that belongs to the call; it is given back with the rest.

        needs_arguments: an object without arguments is no call, rather than a call of none.
        """
        self.phase: Phase = "open"
        self.has_arguments = False
        """Have the arguments ended?"""
        self._names = names
        self._sink = sink
        self._needs_arguments = needs_arguments
        self._held = [lead]
        self._num_held = len(lead)
        self._is_call = False  # has the sink been told?
        self._expects: Expects = "{"
        self._key = ""
        self._name: str | None = None
        self._arguments: str | None = None  # known, and the name not yet
        self._role: Role = "other"
        self._value: JsonValue | None = None
        self._streams = False
        self._text: list[str] = []

    def read(self, text: str, start: int) -> int:
        """Read on from start."""
        position = start
        while self.phase == "open" and position < len(text):
            begin = position
            position = self._step(text, begin)
            if not self._is_call:
                position = self._hold(text, begin, position)
                self._open_if_ready()
        return position

    def leftover(self, has_ended: bool) -> str:
        """Everything, if there was no call."""
        return "" if self._is_call else "".join(self._held)

    def _hold(self, text: str, begin: int, end: int) -> int:
        room = MAX_HELD_CHARS - self._num_held
        if end - begin > room:
            end = begin + room
            self.phase = "broken"
        self._held.append(text[begin:end])
        self._num_held += end - begin
        return end

    def _open_if_ready(self) -> None:
        arguments = self._arguments
        if arguments is None and self._streams:
            arguments = ""
        if arguments is None and self.phase == "closed" and not self._needs_arguments:
            arguments = "{}"
        if self.phase != "broken" and self._name is not None and arguments is not None:
            self._is_call = True
            self._held.clear()
            self._sink.open_call(self._name)
            self._sink.argue(arguments)
        elif self.phase == "closed":
            self.phase = "broken"

    def _step(self, text: str, position: int) -> int:
        if self._value is not None:
            return self._read_value(self._value, text, position)
        char = text[position]
        if char in WHITESPACE:
            return position + 1
        if self._expects == "value":
            self._begin_value(char)
            return position
        if char == '"' and self._expects in ("key", "key or }"):
            self._role, self._value = "key", JsonValue()
            return position
        if not self._take(char):
            self.phase = "broken"
            return position
        return position + 1

    def _take(self, char: str) -> bool:
        match self._expects, char:
            case "{", "{":
                self._expects = "key or }"
            case ":", ":":
                self._expects = "value"
            case ", or }", ",":
                self._expects = "key"
            case ((", or }" | "key or }"), "}"):
                self.phase = "closed"
            case _:
                return False
        return True

    def _begin_value(self, char: str) -> None:
        self._value = JsonValue()
        if self._key == "name" and self._name is None:
            self._role = "name"
        elif self._key in _ARGUMENTS and not self.has_arguments:
            self._role = "arguments"
            self._streams = char == "{"
        else:
            self._role = "other"

    def _read_value(self, value: JsonValue, text: str, position: int) -> int:
        end = value.read(text, position, self._text)
        if self._role == "other":
            self._text.clear()
        elif self._role == "arguments" and self._streams and self._is_call:
            self._sink.argue("".join(self._text))
            self._text.clear()
        if value.is_broken:
            self.phase = "broken"
        elif value.is_complete:
            self._value = None
            self._end_value("".join(self._text))
            self._text.clear()
        return end

    def _end_value(self, text: str) -> None:
        self._expects = ":" if self._role == "key" else ", or }"
        if self._role == "key":
            self._key = json.loads(text)
        elif self._role == "name":
            self._name = json.loads(text) if text.startswith('"') else None
            if self._name not in self._names:
                self.phase = "broken"
        elif self._role == "arguments":
            self.has_arguments = True
            if not self._is_call:
                self._arguments = text if self._streams else _unwrap(text)
                if self._arguments is None:
                    self.phase = "broken"


def _unwrap(text: str) -> str | None:
    """Arguments that are no object: null for none, or a string that holds one."""
    if text == "null":
        return "{}"
    if not text.startswith('"'):
        return None
    inner = str(json.loads(text)).strip(WHITESPACE)
    value, out = JsonValue(), list[str]()
    end = value.read(inner, 0, out)
    is_object = inner.startswith("{") and value.is_complete and end == len(inner)
    return "".join(out) if is_object else None
