"""Turn an answer's tokens into text as they come, and end it at a stop string.

Called by the server, one Detokenizer a request. Two promises: no half of a UTF-8 character is ever
given out, and no part of a stop string is, wherever the tokens' borders fall.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable


class Detokenizer:
    """Bytes of tokens in, text out; what may still become a stop string is held back."""

    def __init__(self, token_bytes: Callable[[int], bytes], stops: tuple[str, ...] = ()) -> None:
        """token_bytes gives a token's bytes; stops are the strings that end the answer."""
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = StopStrings(stops)

    @property
    def is_stopped(self) -> bool:
        """Has a stop string been met? Nothing is given out from there on."""
        return self._stops.is_stopped

    def feed(self, token_id: int) -> str:
        """Add one token and return the text that is now certain."""
        return self._stops.feed(self._decoder.decode(self._token_bytes(token_id)))

    def flush(self) -> str:
        """Return what was held back, at the answer's end.

        A character whose last bytes never came is left out: half of one is none.
        """
        return self._stops.flush()


class StopStrings:
    """Watch a text for the stop string that is complete first; ties go to the longest."""

    def __init__(self, stops: Iterable[str]) -> None:
        """stops: non-empty strings."""
        self._stops = tuple(stops)
        self._held = ""
        self.is_stopped = False

    def feed(self, text: str) -> str:
        """Add text and return the part that no stop string can reach any more."""
        if self.is_stopped:
            return ""
        if not self._stops:
            return text
        self._held += text
        start = self._first_match()
        if start is not None:
            certain, self._held, self.is_stopped = self._held[:start], "", True
            return certain
        cut = len(self._held) - self._num_suspect()
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain

    def flush(self) -> str:
        """Return what was held back: the text ended before it became a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self) -> int | None:
        # By the end, not the start: the answer ends at the very character that completes a stop
        # string, so the result does not depend on how many characters came at once.
        matches = []
        for stop in self._stops:
            start = self._held.find(stop)
            if start >= 0:
                matches.append((start + len(stop), start))
        return min(matches)[1] if matches else None

    def _num_suspect(self) -> int:
        """Length of the longest end of the held text that some stop string begins with."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest
