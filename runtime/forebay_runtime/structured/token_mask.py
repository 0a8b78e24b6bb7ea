"""Sets of tokens as constraints give them to the sampler: a bit for each id, lowest first. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def build_mask(token_ids: Iterable[int], vocab_size: int) -> bytes:
    """The mask of some tokens: ceil(vocab_size / 8) bytes."""
    mask = bytearray(-(-vocab_size // 8))
    for token_id in token_ids:
        mask[token_id // 8] |= 1 << token_id % 8
    return bytes(mask)


def has_token(mask: bytes, token_id: int) -> bool:
    """Is the token's bit set? Ids that the mask has no bit for are not in it."""
    return 0 <= token_id < len(mask) * 8 and bool(mask[token_id // 8] >> token_id % 8 & 1)


def unite(one: bytes, other: bytes) -> bytes:
    """The tokens of either; both masks are of one vocabulary."""
    return _to_bytes(_to_int(one) | _to_int(other), len(one))


def subtract(mask: bytes, others: bytes) -> bytes:
    """The tokens of mask that are not among the others; both are of one vocabulary."""
    return _to_bytes(_to_int(mask) & ~_to_int(others), len(mask))


def _to_int(mask: bytes) -> int:
    return int.from_bytes(mask, "little")


def _to_bytes(bits: int, num_bytes: int) -> bytes:
    return bits.to_bytes(num_bytes, "little")
