"""What was made of a golden set, and what two models' differ in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from forebay_runtime.evaluating.bounds import Bounds, Check


@dataclass(frozen=True)
class Scored:
    """A text's tokens but each window's first: how likely each was, and the likeliest there.

    token_ids: what the text is in the model's tokens.
    """

    logprobs: tuple[float, ...]
    best_ids: tuple[int, ...]
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answered:
    """What a model said to a question, and whether that is right."""

    said: str
    token_ids: tuple[int, ...]
    is_right: bool


@dataclass(frozen=True)
class Measured:
    """One model on a golden set, in its order."""

    texts: Sequence[Scored] = field(default_factory=tuple)
    answers: Sequence[Answered] = field(default_factory=tuple)

    @property
    def num_tokens(self) -> int:
        """Tokens that were scored."""
        return sum(len(text.logprobs) for text in self.texts)

    @property
    def perplexity(self) -> float | None:
        """Of all texts' tokens together; None where none was scored."""
        if not self.num_tokens:
            return None
        total = math.fsum(logprob for text in self.texts for logprob in text.logprobs)
        try:
            return math.exp(-total / self.num_tokens)
        except OverflowError:
            return math.inf

    @property
    def num_right(self) -> int:
        """Questions that were answered right."""
        return sum(answer.is_right for answer in self.answers)


@dataclass(frozen=True)
class Comparison:
    """A model beside another, the one before.

    perplexity_increase: a share, of one. agreement: of the texts' places, how many have the same
    likeliest token. same_answers: of the questions, how many got the same tokens. Each None where
    the golden set has nothing to tell.
    """

    perplexity_increase: float | None
    agreement: float | None
    same_answers: float | None
    num_lost: int
    """Questions that the one before answered right, and this one does not."""


def compare(after: Measured, before: Measured) -> Comparison:
    """What changed from one to the other."""
    increase = None
    if after.perplexity is not None and before.perplexity is not None:
        increase = after.perplexity / before.perplexity - 1
    same = total = 0
    for one, other in zip(after.texts, before.texts, strict=True):
        total += len(one.best_ids)
        same += sum(a == b for a, b in zip(one.best_ids, other.best_ids, strict=True))
    pairs = list(zip(after.answers, before.answers, strict=True))
    num_same = sum(one.token_ids == other.token_ids for one, other in pairs)
    return Comparison(
        increase,
        same / total if total else None,
        num_same / len(pairs) if pairs else None,
        sum(other.is_right and not one.is_right for one, other in pairs),
    )


def check(measured: Measured, comparison: Comparison | None, bounds: Bounds) -> list[Check]:
    """Each bound that was set; one that nothing was measured for is broken."""
    checks: list[Check] = []

    def add(name: str, bound: float | None, value: float | None, *, is_most: bool) -> None:
        if bound is None:
            return
        shown = math.nan if value is None else value
        is_held = value is not None and (value <= bound if is_most else value >= bound)
        checks.append(Check(name, bound, shown, is_held))

    num_questions = len(measured.answers)
    exact = measured.num_right / num_questions if num_questions else None
    if comparison is not None:
        lost = comparison.num_lost / num_questions if num_questions else None
        increase = comparison.perplexity_increase
        add("perplexity increase", bounds.perplexity_increase, increase, is_most=True)
        add("answers lost", bounds.lost_answers, lost, is_most=True)
        add("token agreement", bounds.least_agreement, comparison.agreement, is_most=False)
    add("exact answers", bounds.least_exact, exact, is_most=False)
    return checks
