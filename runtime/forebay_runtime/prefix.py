"""What a full KV block holds, as one object: its own tokens and all before them.

Keys and values depend on every token that came before, so a block may be shared only by requests
that begin with the same tokens and belong to the same salt. Such a beginning is a Prefix, chained
to the one before it; equal prefixes are one object for as long as anything holds it. A hash finds
it, and the token ids decide: two beginnings whose hashes collide stay two. Imports no torch.
"""

from __future__ import annotations

from weakref import WeakValueDictionary


class Prefix:
    """The tokens of one full block, after parent's; the first block's parent is the salt."""

    __slots__ = ("__weakref__", "parent", "token_ids")

    def __init__(self, parent: Prefix | str, token_ids: tuple[int, ...]) -> None:
        self.parent = parent
        self.token_ids = token_ids


class PrefixTree:
    """All prefixes that anything holds: blocks, requests, or longer prefixes."""

    def __init__(self) -> None:
        self._prefixes: WeakValueDictionary[tuple[Prefix | str, tuple[int, ...]], Prefix] = (
            WeakValueDictionary()
        )

    def __len__(self) -> int:
        return len(self._prefixes)

    def extend(self, parent: Prefix | str, token_ids: tuple[int, ...]) -> Prefix:
        """The prefix of token_ids after parent, which is a prefix or, at the beginning, a salt."""
        key = (parent, token_ids)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = Prefix(parent, token_ids)
        return prefix
