"""Turn an answer's tokens into text as they come, and end it at a stop string.

Called by the server, one Detokenizer a request. Two promises: no half of a UTF-8 character is ever
given out, and no part of a stop string is, wherever the tokens' borders fall.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class TextRules:
    """How an answer's tokens become its text.

    stops end the answer; they are watched for in the text of the tokens after the first min_tokens.
    includes_stop: the stop string, or the token that ends the answer, is part of the text.
    keeps_special: special tokens are written out instead of left out; kept_token_ids are anyway.
    """

    stops: tuple[str, ...] = ()
    includes_stop: bool = False
    keeps_special: bool = False
    kept_token_ids: frozenset[int] = frozenset()
    min_tokens: int = 0


class Detokenizer:
    """Bytes of tokens in, text out; what may still become a stop string is held back."""

    def __init__(
        self, token_bytes: Callable[[int, bool], bytes], rules: TextRules | None = None
    ) -> None:
        """token_bytes gives a token's bytes, those of special tokens if its flag is set."""
        self._rules = rules = rules or TextRules()
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = StopStrings(rules.stops, rules.includes_stop)
        self._num_unwatched_tokens = rules.min_tokens if rules.stops else 0
        self.num_chars = 0
        """Characters that the tokens so far have completed, those held back or cut included."""

    @property
    def stopped_by(self) -> str | None:
        """The stop string that was met; nothing is given out from there on."""
        return self._stops.met

    def feed(self, token_id: int) -> str:
        """Add one token and return the text that is now certain."""
        keeps_special = self._rules.keeps_special or token_id in self._rules.kept_token_ids
        text = self._decoder.decode(self._token_bytes(token_id, keeps_special))
        self.num_chars += len(text)
        if self._num_unwatched_tokens:
            self._num_unwatched_tokens -= 1
            return text
        return self._stops.feed(text)

    def flush(self) -> str:
        """Return what was held back, at the answer's end.

        A character whose last bytes never came is left out: its tokens say what there was of it.
        """
        return self._stops.flush()


class StopStrings:
    """Watch a text for the stop string that is complete first; ties go to the longest."""

    def __init__(self, stops: Iterable[str], includes_stop: bool = False) -> None:
        """stops: non-empty strings; includes_stop: the text ends after the one met, not before."""
        self._stops = tuple(stops)
        self._includes_stop = includes_stop
        self._held = ""
        self.met: str | None = None

    def feed(self, text: str) -> str:
        """Add text and return the part that no stop string can reach any more."""
        if self.met is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        match = self._first_match()
        if match is not None:
            end, start, self.met = match
            certain, self._held = self._held[: end if self._includes_stop else start], ""
            return certain
        cut = len(self._held) - self._num_suspect()
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain

    def flush(self) -> str:
        """Return what was held back: the text ended before it became a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self) -> tuple[int, int, str] | None:
        # By the end, not the start: the answer ends at the very character that completes a stop
        # string, so the result does not depend on how many characters came at once.
        matches = []
        for stop in self._stops:
            start = self._held.find(stop)
            if start >= 0:
                matches.append((start + len(stop), start, stop))
        return min(matches) if matches else None

    def _num_suspect(self) -> int:
        """Length of the longest end of the held text that some stop string begins with."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
