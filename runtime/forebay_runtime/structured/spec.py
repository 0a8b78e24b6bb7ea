"""What a client may ask of an answer's form, as data, and the error for what cannot be had.

Made by the server from a request's fields; knows no grammar library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]

MAX_SOURCE_BYTES = 2 * 2**20
"""Larger sources are refused unread: what is compiled in the time allowed is far smaller."""

TITLES: Mapping[Kind, str] = {
    "json_schema": "JSON schema",
    "json_object": "JSON object",
    "regex": "regular expression",
    "choice": "list of choices",
    "grammar": "grammar",
}


class StructureError(ValueError):
    """The structure that was asked for cannot be had; the message is a sentence for the client."""


@dataclass(frozen=True)
class StructureSpec:
    """The form that an answer must have.

    source by kind: json_schema, a schema as mapping or JSON text; json_object, nothing ("");
    regex, an expression that the whole answer matches, without look-around or back-references;
    choice, texts of which the answer is one; grammar, Lark as llguidance reads it (with
    `%json {…}` for a schema and `literal(text)` for text that may hold special tokens), or GBNF.
    """

    kind: Kind
    source: str | Mapping[str, Any] | Sequence[str] = ""

    def to_text(self) -> str:
        """The source as one text: as it is, or JSON.

        Raises: StructureError if it is no source of its kind, or too long.
        """
        if self.kind == "json_object":
            return ""
        if isinstance(self.source, str) and self.kind != "choice":
            return _check_text(self.kind, self.source)
        if self.kind == "choice":
            _check_choices(self.source)
        elif self.kind != "json_schema" or not isinstance(self.source, Mapping):
            raise StructureError(f"The {TITLES[self.kind]} is no text")
        return _to_json(self.kind, self.source)


def _check_text(kind: Kind, text: str) -> str:
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise StructureError(f"The {TITLES[kind]} holds a lone surrogate") from None
    if not text.strip() and kind != "regex":
        raise StructureError(f"The {TITLES[kind]} is empty")
    if num_bytes > MAX_SOURCE_BYTES:
        raise StructureError(_too_long(kind))
    return text


def _check_choices(choices: object) -> None:
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise StructureError("The choices are no list of texts")
    if not choices:
        raise StructureError("The list of choices is empty")
    for choice in choices:
        if not isinstance(choice, str):
            raise StructureError(f"The choice {str(choice)[:100]!r} is no text")


def _to_json(kind: Kind, value: Any) -> str:
    """Write JSON piece by piece, so that other threads run between and a long one is given up."""
    pieces, num_chars = [], 0
    try:
        for piece in json.JSONEncoder(allow_nan=False).iterencode(value):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > MAX_SOURCE_BYTES:
                raise StructureError(_too_long(kind))
    except RecursionError:
        raise StructureError(f"The {TITLES[kind]} is nested too deeply") from None
    except (ValueError, TypeError) as exc:
        if isinstance(exc, StructureError):
            raise
        raise StructureError(f"The {TITLES[kind]} is no JSON: {exc}") from None
    return "".join(pieces)


def _too_long(kind: Kind) -> str:
    return f"The {TITLES[kind]} is longer than {MAX_SOURCE_BYTES} bytes"
