"""Answers drawn within a structure by chance alone: what a model could write at its worst."""

import random
from collections.abc import Iterable

from forebay_runtime.request import Constraint
from forebay_runtime.structured.vocabulary import TokenSpelling

_CLOSING = (b'"', b"@", b"}", b"]", b")", b"<", b"=", b",", b":", b".")
"""What tends to bring a text to its end; tried in this order, most of the time."""


class Walker:
    """Draws tokens that a constraint allows until it is complete."""

    def __init__(self, tokenizer: TokenSpelling, ends: frozenset[int], vocab_size: int) -> None:
        self._texts = [tokenizer.token_bytes(id_) for id_ in range(vocab_size)]
        self._ends = ends

    def walk(self, constraint: Constraint, seed: int, num_free: int) -> str:
        """The text: num_free tokens drawn freely, an end among them, then on until the end.

        Raises: AssertionError if there is no way on, or no end to be found.
        """
        chance = random.Random(seed)
        text = b""
        for step in range(1000):
            if constraint.is_complete:
                return text.decode()
            allowed = read_mask(constraint.allowed())
            assert allowed, (constraint.error, text)
            token_id = self._home(allowed, chance) if step >= num_free else chance.choice(allowed)
            constraint.accept(token_id)
            assert constraint.error is None, (constraint.error, text, token_id)
            if token_id in self._ends:
                assert constraint.is_complete
                return text.decode()
            assert self._texts[token_id], f"the token {token_id} has no text"
            text += self._texts[token_id]
        raise AssertionError(f"no end after {step} tokens: {text[-100:]!r}")

    def _home(self, allowed: list[int], chance: random.Random) -> int:
        if ends := self._ends.intersection(allowed):
            return min(ends)
        for start in _CLOSING:
            closing = [id_ for id_ in allowed if self._texts[id_].startswith(start)]
            if closing and chance.random() < 0.7:
                return min(closing, key=lambda id_: (len(self._texts[id_]), id_))
        return chance.choice(allowed)


def read_mask(mask: bytes) -> list[int]:
    """The ids whose bits are set, lowest bit of the first byte first."""
    return [
        index * 8 + bit
        for index, byte in enumerate(mask)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    ]


def takes(constraint: Constraint, token_ids: Iterable[int], ends: Iterable[int]) -> bool:
    """Does a structure allow these tokens one after the other, and then an end?"""
    for token_id in token_ids:
        if not allows(constraint, token_id):
            return False
        constraint.accept(token_id)
    return constraint.error is None and any(allows(constraint, id_) for id_ in ends)


def allows(constraint: Constraint, token_id: int) -> bool:
    """Is the token's bit set?"""
    return bool(constraint.allowed()[token_id // 8] >> token_id % 8 & 1)
