"""A structure that was built, and the last ones built or refused. Bounded in number and memory."""

from __future__ import annotations

from collections import OrderedDict

from llguidance import LLMatcher

from forebay_runtime.request import Constraint
from forebay_runtime.structured.constraint import TokenConstraint
from forebay_runtime.structured.vocabulary import Vocabulary

_MAX_STARTS = 32
_MAX_ENTRIES = 256
_MAX_BYTES = 64 * 2**20


class Compiled:
    """Each request that wants the structure starts one walk through it."""

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._num_starts = 0
        self._has_failed = False

    @property
    def is_worn(self) -> bool:
        """Should it be built anew before others use it?

        Walks share what they find out about the structure, and the library keeps that within a
        limit: were it never built anew, the limit would some day end every request for it.
        """
        return self._has_failed or self._num_starts >= _MAX_STARTS

    def start(self) -> Constraint:
        """Begin a walk for one request."""
        self._num_starts += 1
        return TokenConstraint(self._matcher.deep_copy(), self._vocabulary, self._on_failure)

    def _on_failure(self) -> None:
        self._has_failed = True


class CompiledCache:
    """Least recently used goes first. A refusal is kept as its sentence."""

    def __init__(self, max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES) -> None:
        self._entries: OrderedDict[bytes, Compiled | str] = OrderedDict()
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    def find(self, key: bytes) -> Compiled | str | None:
        """What was kept, unless it is worn."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if isinstance(entry, Compiled) and entry.is_worn:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry

    def keep(self, key: bytes, entry: Compiled | str) -> None:
        """Keep it, and let others go for it."""
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries or self.num_bytes > self._max_bytes:
            self._entries.popitem(last=False)

    @property
    def num_bytes(self) -> int:
        """What the kept structures took to build."""
        built = (entry for entry in self._entries.values() if isinstance(entry, Compiled))
        return sum(entry.memory_bytes for entry in built)
