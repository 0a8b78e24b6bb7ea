"""Files of JSON lines, which people give: of a calibration's text, and of a golden set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, each with its number from 1 on.

    Only a newline ends one: JSON's strings may hold all else that str.splitlines parts by.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def parse_line(line: str) -> Any:
    """What a line says.

    Raises: ValueError if it is not JSON, is nested too deeply, or holds half of a character.
    """
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it holds half of a character (a lone surrogate)") from None
    return value
