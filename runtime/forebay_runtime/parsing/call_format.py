"""How one family of models writes tool calls, as data: a file for each family holds its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from forebay_runtime.parsing.sink import Sink, make_call_id

Phase = Literal["open", "closed", "broken"]


class Reader(Protocol):
    """Reads what follows a marker and puts calls into a sink."""

    @property
    def phase(self) -> Phase:
        """Open while it needs more text."""

    def read(self, text: str, start: int) -> int:
        """Read on from start; where reading ended, which is the text's end while it is open."""

    def leftover(self, has_ended: bool) -> str:
        """The text that was read and is part of no call; has_ended: none can follow."""


@dataclass(frozen=True)
class Spelling:
    """How calls are written where they must be, down to the spaces, as the models were trained to.

    key: what the arguments are called. The others are pieces of grammar: between two calls, around
    all of them (begin, end), around each (before, behind).
    """

    key: str
    between: str
    begin: str = ""
    end: str = ""
    before: str = ""
    behind: str = ""


@dataclass(frozen=True)
class CallFormat:
    """How calls are found, read and spelled.

    build_reader: from the marker that was found, the functions' names and the sink.
    special_tokens: those whose text a parser must see. separators: characters between two calls.
    """

    markers: tuple[str, ...]
    build_reader: Callable[[str, frozenset[str], Sink], Reader]
    spelling: Spelling
    special_tokens: tuple[str, ...] = ()
    separators: str = ""
    make_id: Callable[[], str] = make_call_id
