"""Follow one JSON value through text that comes in pieces.

Strict JSON with one indulgence: control characters inside strings, which models write though JSON
forbids them, are escaped. Linear in the text, and without memory of it.
"""

from __future__ import annotations

import re
from typing import Literal

WHITESPACE = " \t\r\n"
MAX_DEPTH = 128
_MAX_SCALAR_CHARS = 1024
_STRING_STOP = re.compile(r'["\\\x00-\x1f]')
_SPACES = re.compile(r"[ \t\r\n]+")
_SCALAR_RUN = re.compile(r"[0-9A-Za-z+.\-]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_START = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_HEX = frozenset("0123456789abcdefABCDEF")

Expects = Literal["value", "value or end", "key", "key or end", "colon", "comma or end"]
Inside = Literal["string", "escape", "unicode", "scalar"]


class JsonValue:
    """One value; is_complete once it ended, is_broken once it cannot be JSON any more."""

    def __init__(self) -> None:
        """Expect a value, without whitespace in front."""
        self.is_complete = False
        self.is_broken = False
        self._open: list[str] = []  # the brackets that are still to come, innermost last
        self._expects: Expects = "value"
        self._inside: Inside | None = None
        self._is_key = False
        self._scalar = ""
        self._num_hex = 0

    def read(self, text: str, start: int, out: list[str]) -> int:
        """Read on from start, and put into out what belongs to the value.

        Returns where reading ended: at the end of the text, behind the value, or at the character
        that broke it.
        """
        position = start
        while position < len(text) and not (self.is_complete or self.is_broken):
            match self._inside:
                case "string":
                    position = self._read_string(text, position, out)
                case "scalar":
                    position = self._read_scalar(text, position, out)
                case "escape" | "unicode":
                    position = self._read_escape(text, position, out)
                case None:
                    position = self._read_structure(text, position, out)
        return position

    def _read_string(self, text: str, position: int, out: list[str]) -> int:
        stop = _STRING_STOP.search(text, position)
        if stop is None:
            out.append(text[position:])
            return len(text)
        char = stop[0]
        out.append(text[position : stop.start()])
        out.append(char if char in '"\\' else f"\\u{ord(char):04x}")
        if char == "\\":
            self._inside = "escape"
        elif char == '"':
            self._inside = None
            if self._is_key:
                self._expects = "colon"
            else:
                self._end_value()
        return stop.end()

    def _read_escape(self, text: str, position: int, out: list[str]) -> int:
        char = text[position]
        if self._inside == "unicode":
            is_valid = char in _HEX
            self._num_hex += 1
            if self._num_hex == 4:
                self._inside = "string"
        elif char == "u":
            is_valid, self._inside, self._num_hex = True, "unicode", 0
        else:
            is_valid, self._inside = char in '"\\/bfnrt', "string"
        if not is_valid:
            self.is_broken = True
            return position
        out.append(char)
        return position + 1

    def _read_scalar(self, text: str, position: int, out: list[str]) -> int:
        run = _SCALAR_RUN.match(text, position)
        room = _MAX_SCALAR_CHARS - len(self._scalar)
        taken = (run[0] if run else "")[:room]
        valid = _count_valid_chars(self._scalar + taken) - len(self._scalar)
        self._scalar += taken[:valid]
        out.append(taken[:valid])
        end = position + valid
        if end < len(text):  # something else follows: the scalar ends here
            self._inside = None
            if _is_scalar(self._scalar) and _SCALAR_RUN.fullmatch(text[end]) is None:
                self._end_value()
            else:
                self.is_broken = True
        return end

    def _read_structure(self, text: str, position: int, out: list[str]) -> int:
        spaces = _SPACES.match(text, position)
        if spaces is not None:
            out.append(spaces[0])
            return spaces.end()
        char = text[position]
        if self._take(char):
            out.append(char)
            return position + 1
        if self._inside != "scalar":
            self.is_broken = True
        return position

    def _take(self, char: str) -> bool:
        """Take one character outside of strings and scalars; False if it does not fit here."""
        expects = self._expects
        if expects.endswith("or end") and self._open and char == self._open[-1]:
            self._open.pop()
            self._end_value()
            return True
        if expects in ("value", "value or end"):
            return self._start_value(char)
        if expects in ("key", "key or end") and char == '"':
            self._inside, self._is_key = "string", True
            return True
        if expects == "colon" and char == ":":
            self._expects = "value"
            return True
        if expects == "comma or end" and char == ",":
            self._expects = "key" if self._open[-1] == "}" else "value"
            return True
        return False

    def _start_value(self, char: str) -> bool:
        if char in "{[":
            if len(self._open) == MAX_DEPTH:
                return False
            self._open.append("}" if char == "{" else "]")
            self._expects = "key or end" if char == "{" else "value or end"
            return True
        if char == '"':
            self._inside, self._is_key = "string", False
            return True
        if char in "-0123456789tfn":  # read as a whole, this character included
            self._inside, self._scalar = "scalar", ""
        return False

    def _end_value(self) -> None:
        self._expects = "comma or end"
        self.is_complete = not self._open


def _count_valid_chars(scalar: str) -> int:
    """How many of the characters can begin a number or literal."""
    literal = _LITERALS.get(scalar[:1])
    if literal is None:
        number = _NUMBER_START.match(scalar)
        return number.end() if number else 0
    count = 0
    while count < min(len(scalar), len(literal)) and scalar[count] == literal[count]:
        count += 1
    return count


def _is_scalar(text: str) -> bool:
    return text in _LITERALS.values() or _NUMBER.fullmatch(text) is not None
