"""A constraint that begins when the model has thought.

What a client asks for is the form of the answer, not of the reasoning in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from forebay_runtime.parsing.reasoning import BEGIN, ReasoningSplitter, choose_start
from forebay_runtime.request import Constraint
from forebay_runtime.structured.token_mask import build_mask, has_token, unite


@dataclass(frozen=True)
class ReasoningTokens:
    """One model's tokens, as far as reasoning goes.

    spell: a token's text, that of special tokens included. free: the mask of all tokens that may
    be drawn while it thinks. opening: the mask of those that read <think>.
    """

    spell: Callable[[int], str]
    free: bytes
    opening: bytes


def read_reasoning_tokens(
    spell: Callable[[int], str], vocab_size: int, end_token_ids: Iterable[int]
) -> ReasoningTokens:
    """Look through a model's tokens once; nothing may end an answer while it is thought about."""
    ends = frozenset(end_token_ids)
    free = [token_id for token_id in range(vocab_size) if token_id not in ends]
    opening = [token_id for token_id in free if spell(token_id) == BEGIN]
    return ReasoningTokens(spell, build_mask(free, vocab_size), build_mask(opening, vocab_size))


def delay_past_reasoning(
    constraint: Constraint,
    reasoning_parser: str | None,
    prompt_tail: str,
    tokens: ReasoningTokens,
) -> Constraint:
    """Have a constraint, which was told of no token yet, begin behind the reasoning, if any.

    reasoning_parser, prompt_tail: as for build_chat_parser.
    """
    if reasoning_parser is None:
        return constraint
    start = choose_start(prompt_tail, reasoning_parser)
    if start == "speaking":
        return constraint
    return AfterReasoning(constraint, tokens, is_thinking=start == "thinking")


class AfterReasoning:
    """Lets all but an end pass until the reasoning is over; implements request.Constraint.

    A model that has not opened its reasoning yet may open it, or begin with the answer at once.
    """

    def __init__(self, constraint: Constraint, tokens: ReasoningTokens, is_thinking: bool) -> None:
        """is_thinking: the reasoning has begun."""
        self._constraint = constraint
        self._tokens = tokens
        self._may_open = not is_thinking
        self._splitter = ReasoningSplitter("thinking") if is_thinking else None

    def allowed(self) -> bytes:
        """A bit for each token id."""
        if self._splitter is not None:
            return self._tokens.free
        mask = self._constraint.allowed()
        return unite(mask, self._tokens.opening) if self._may_open else mask

    def accept(self, token_id: int) -> None:
        """Take a sampled token."""
        if self._splitter is not None:
            self._splitter.feed(self._tokens.spell(token_id))
            if self._splitter.is_over:
                self._splitter = None
        elif self._may_open and has_token(self._tokens.opening, token_id):
            self._splitter = ReasoningSplitter("thinking")
        else:
            self._constraint.accept(token_id)
        self._may_open = False

    @property
    def is_complete(self) -> bool:
        """Can nothing follow but the end?"""
        return self._splitter is None and self._constraint.is_complete

    @property
    def error(self) -> str | None:
        """Why no token can follow."""
        return self._constraint.error
