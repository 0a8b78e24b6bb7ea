"""Calls as Mistral models write them, after [TOOL_CALLS].

Either a list, [TOOL_CALLS] [{"name": …, "arguments": {…}}, …], or, since tokeniser version 11, a
marker for each call: [TOOL_CALLS]name{…} or [TOOL_CALLS]name[ARGS]{…}.
"""

from __future__ import annotations

import re

from forebay_runtime.parsing.call_format import CallFormat, Phase, Reader, Spelling
from forebay_runtime.parsing.call_list import CallList
from forebay_runtime.parsing.envelope import Envelope
from forebay_runtime.parsing.json_value import WHITESPACE, JsonValue
from forebay_runtime.parsing.sink import Sink, make_mistral_id
from forebay_runtime.structured import literal

MARKER = "[TOOL_CALLS]"
_NAME_CHAR = re.compile(r"[a-zA-Z0-9_-]")
_MAX_HEAD_CHARS = 256


class MistralCalls:
    """A Reader of what follows one marker: it looks at the first character to see which form."""

    def __init__(self, marker: str, names: frozenset[str], sink: Sink) -> None:
        """marker: [TOOL_CALLS]."""
        self._names = names
        self._sink = sink
        self._lead = marker
        self._form: Reader | None = None
        self._phase: Phase = "open"

    @property
    def phase(self) -> Phase:
        """That of the form, once it is known."""
        return self._phase if self._form is None else self._form.phase

    def read(self, text: str, start: int) -> int:
        """Read on from start."""
        position = start
        while self._form is None and position < len(text) and self._phase == "open":
            position = self._read_lead(text[position], position)
        return position if self._form is None else self._form.read(text, position)

    def leftover(self, has_ended: bool) -> str:
        """What has become no call."""
        return self._lead if self._form is None else self._form.leftover(has_ended)

    def _read_lead(self, char: str, position: int) -> int:
        if char in WHITESPACE and len(self._lead) < _MAX_HEAD_CHARS:
            self._lead += char
            return position + 1
        if char == "[":
            self._form = CallList(self._lead + char, self._names, self._sink)
            return position + 1
        if char == "{":
            self._form = Envelope(self._lead, self._names, self._sink)
        elif _NAME_CHAR.match(char):
            self._form = NamedCall(self._lead, self._names, self._sink)
        else:
            self._phase = "broken"
        return position


class NamedCall:
    """A Reader of name{…}, from the name on."""

    def __init__(self, lead: str, names: frozenset[str], sink: Sink) -> None:
        """lead: the marker."""
        self.phase: Phase = "open"
        self._names = names
        self._sink = sink
        self._lead = lead
        self._head = ""  # the name and what stands between it and the arguments
        self._arguments: JsonValue | None = None

    def read(self, text: str, start: int) -> int:
        """Read on from start."""
        position = start
        while self._arguments is None and self.phase == "open" and position < len(text):
            position = self._read_head(text[position], position)
        if self._arguments is not None and position < len(text):
            out: list[str] = []
            position = self._arguments.read(text, position, out)
            self._sink.argue("".join(out))
            if self._arguments.is_complete:
                self.phase = "closed"
            elif self._arguments.is_broken:
                self.phase = "broken"
        return position

    def leftover(self, has_ended: bool) -> str:
        """Marker and head, if there was no call."""
        return self._lead + self._head if self._arguments is None else ""

    def _read_head(self, char: str, position: int) -> int:
        if char == "{":
            name = _read_name(self._head)
            if name not in self._names:
                self.phase = "broken"
            else:
                self._sink.open_call(name)
                self._arguments = JsonValue()
            return position
        if len(self._head) == _MAX_HEAD_CHARS or not _may_be_head(self._head + char):
            self.phase = "broken"
            return position
        self._head += char
        return position + 1


_HEAD = re.compile(r"([a-zA-Z0-9_-]+)(?:\[CALL_ID\][a-zA-Z0-9]*)?(?:\[ARGS\])?[ \t\r\n]*\Z")
_TAGS = ("[ARGS]", "[CALL_ID]")


def _read_name(head: str) -> str:
    match = _HEAD.match(head)
    return match[1] if match else ""


def _may_be_head(head: str) -> bool:
    """Can the text go on to a head?"""
    if _HEAD.match(head):
        return True
    before, bracket, tag = head.rpartition("[")
    return (bool(bracket and _HEAD.match(before)) and before[-1:] not in WHITESPACE) and any(
        known.startswith(bracket + tag) for known in _TAGS
    )


MISTRAL = CallFormat(
    (MARKER,),
    MistralCalls,
    Spelling("arguments", '", "', f'{literal(MARKER)} "["', '"]"'),
    special_tokens=(MARKER, *_TAGS),
    make_id=make_mistral_id,
)
