"""Whether a tokenizer is the model's own, as far as texts tell. Imports nothing slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def find_foreign_token(texts: Iterable[Sequence[int]], vocab_size: int) -> int | None:
    """The largest token of texts, where the model has none of that number."""
    largest = max((max(text, default=0) for text in texts), default=0)
    return largest if largest >= vocab_size else None
