"""A part of an answer, as it is told: text, and the tokens that it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay_runtime.request import TokenLogprobs


class Token(NamedTuple):
    """One token of an answer: where in the answer's text it begins, and how likely it was.

    offset: characters that the tokens before it completed.
    """

    token_id: int
    offset: int
    score: TokenLogprobs | None = None


class Piece(NamedTuple):
    """A part of an answer, or all of it: text, and the tokens that it took.

    The last piece has a finish_reason, stop or length; stop_reason is the stop string, or the stop
    token that the client named, which ended it. prompt_scores, where asked, come with the first.
    """

    text: str = ""
    tokens: tuple[Token, ...] = ()
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_scores: tuple[TokenLogprobs | None, ...] | None = None


def join(pieces: Sequence[Piece]) -> Piece:
    """One piece out of an answer's pieces in a row."""
    if len(pieces) == 1:
        return pieces[0]
    last = pieces[-1] if pieces else Piece()
    return Piece(
        "".join([piece.text for piece in pieces]),
        tuple([token for piece in pieces for token in piece.tokens]),
        last.finish_reason,
        last.stop_reason,
        next((p.prompt_scores for p in pieces if p.prompt_scores is not None), None),
    )
