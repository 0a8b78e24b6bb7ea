"""A model's tokens as the grammar library wants them: bytes by id, and which are special.

Built once a process from Forebay's own tokenizer, so that what a constraint allows is what the
detokenizer will write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from llguidance import LLTokenizer, TokenizerWrapper


class TokenSpelling(Protocol):
    """The part of Forebay's tokenizer that is needed here."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to an answer: none for special and unknown ids."""

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it; empty for unknown ids."""


@dataclass(frozen=True)
class Vocabulary:
    """tokens: what each id adds to an answer, empty for special ids and for padding.

    special_ids: those without text, by name. They are drawn only where a grammar names them, and
    end tokens only where an answer may end. vocab_size: the model's, which may have more ids.
    """

    tokens: tuple[bytes, ...]
    special_ids: Mapping[str, int]
    eos_token_ids: frozenset[int]
    vocab_size: int


def read_vocabulary(
    tokenizer: TokenSpelling, eos_token_ids: Iterable[int], vocab_size: int
) -> Vocabulary:
    """Spell every token; ids outside the model's vocabulary are left out."""
    ends = frozenset(id_ for id_ in eos_token_ids if 0 <= id_ < vocab_size)
    tokens, special = [], {}
    for token_id in range(vocab_size):
        text = b"" if token_id in ends else tokenizer.token_bytes(token_id)
        tokens.append(text)
        if not text and (name := tokenizer.token_text(token_id)):
            special[name] = token_id
    return Vocabulary(tuple(tokens), special, ends, vocab_size)


def build_library_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """Build the library's prefix tree of the tokens.

    An id without text and name gets none here either: the library allows it nowhere.
    """
    names = {id_: name.encode() for name, id_ in vocabulary.special_ids.items()}
    tokens = [names.get(id_, text) for id_, text in enumerate(vocabulary.tokens)]
    ends = sorted(vocabulary.eos_token_ids)
    if not ends:  # the library wants one; this lies behind the bytes that masks are cut to
        tokens += [b""] * (-len(tokens) % 8) + [b"<end>"]
        ends = [len(tokens) - 1]
    words = _Words(tokens, sorted({*names, *ends}), ends[0])
    return LLTokenizer(TokenizerWrapper(words), eos_token=ends)


@dataclass
class _Words:
    tokens: list[bytes]
    special_token_ids: list[int]
    eos_token_id: int
    bos_token_id: int | None = None

    def __call__(self, text: bytes) -> list[int]:
        """No tokens: grammars are built so that the library never forces a tokenization."""
        return []
