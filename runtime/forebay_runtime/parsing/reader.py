"""The scanner that all formats of tool calls share: content until a marker, then one reader.

A format says which markers begin a call and how to read on from there. A reader consumes all the
text that it is given, until it has its calls or knows that they are none; what it took and did not
use it gives back as content.
"""

from __future__ import annotations

import re
from functools import cache

from forebay_runtime.parsing.call_format import CallFormat, Reader
from forebay_runtime.parsing.delta import Delta
from forebay_runtime.parsing.sink import Sink


class CallParser:
    """Takes the calls of one format out of content."""

    def __init__(self, call_format: CallFormat, names: frozenset[str]) -> None:
        """names: the functions that may be called."""
        self._format = call_format
        self._names = names
        self._sink = Sink(call_format.make_id, call_format.separators)
        self._reader: Reader | None = None
        self._rest = ""  # the beginning of what may become a marker

    @property
    def num_calls(self) -> int:
        """How many calls have begun."""
        return self._sink.num_calls

    def feed(self, text: str) -> Delta:
        """What this piece adds."""
        text, self._rest = self._rest + text, ""
        position = 0
        while position < len(text):
            if self._reader is None:
                position = self._read_content(text, position)
            else:
                position = self._read_call(self._reader, text, position)
        return self._sink.take()

    def flush(self) -> Delta:
        """What was held back."""
        if self._reader is not None:
            self._sink.say(self._reader.leftover(has_ended=True))
        self._sink.say(self._rest)
        self._reader, self._rest = None, ""
        self._sink.close()
        return self._sink.take()

    def _read_content(self, text: str, position: int) -> int:
        found, marker = find_marker(text, position, self._format.markers)
        self._sink.say(text[position:found])
        if marker is None:
            self._rest = text[found:]
            return len(text)
        self._reader = self._format.build_reader(marker, self._names, self._sink)
        return found + len(marker)

    def _read_call(self, reader: Reader, text: str, position: int) -> int:
        end = reader.read(text, position)
        if reader.phase == "broken":
            self._sink.say(reader.leftover(has_ended=False))
        if reader.phase != "open":
            self._reader = None
        return end


def find_marker(text: str, start: int, markers: tuple[str, ...]) -> tuple[int, str | None]:
    """Find the first marker at or after start.

    Returns its place and itself; or, where there is none, the place from which the text may still
    become one (the text's end where nothing can) and None.
    """
    found = _compile(markers).search(text, start)
    if found is not None:
        return found.start(), found[0]
    longest = max(map(len, markers))
    for place in range(max(start, len(text) - longest + 1), len(text)):
        if any(marker.startswith(text[place:]) for marker in markers):
            return place, None
    return len(text), None


@cache
def _compile(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, markers)))
