"""How many proposed tokens are worth their work: a rule over two measured numbers.

A step of n tokens takes about a + b·n seconds. With B requests and nothing proposed it makes B
tokens, so in the b seconds of one row more it would have made B·b / (a + b·B): a row's price in
tokens. A proposed token gives as many tokens as it is likely to be kept, which for the j-th after
each other is p to the j-th. So it is worth it while p to the j-th is above the price.

At batch 1 of a model whose weights must be read anyway the price is near 0, and long guesses are
worth it; where a step is all arithmetic the price is near 1, and none is. By the mediant of
fractions a step with such guesses never makes fewer tokens a second than one without, as far as p,
a and b are right. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

_FORGETTING = 0.97
"""Of what earlier steps said, at each step: contexts grow, and machines are shared."""
_LEAST_VARIANCE = 0.1
"""Of the numbers of tokens in steps; below it nothing is learned of what one more costs."""
_MOST_SURPRISE = 3.0
"""A step that takes so many times longer than expected was disturbed: it counts as that much."""

_EXPECTED = 0.5
_EXPECTED_WEIGHT = 2.0
"""A request begins as if half of two tokens had been kept, and comes back to that."""
_KEPT_MEMORY = 0.9
_IDLE_MEMORY = 0.99


class StepCost:
    """What a step of decodes takes by its number of tokens, learned from those that were run."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._num = self._seconds = self._num_num = self._num_seconds = 0.0
        self._token_seconds = 0.0

    def note(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step that read no prompt."""
        if self._weight > 1:
            mean = self._seconds / self._weight
            seconds = min(seconds, _MOST_SURPRISE * max(mean, self._at(num_tokens)))
        sums = (1.0, num_tokens, seconds, num_tokens * num_tokens, num_tokens * seconds)
        before = (self._weight, self._num, self._seconds, self._num_num, self._num_seconds)
        self._weight, self._num, self._seconds, self._num_num, self._num_seconds = (
            _FORGETTING * old + new for old, new in zip(before, sums, strict=True)
        )
        mean = self._num / self._weight
        variance = self._num_num / self._weight - mean * mean
        if variance > _LEAST_VARIANCE:
            covariance = self._num_seconds / self._weight - mean * self._seconds / self._weight
            self._token_seconds = max(0.0, covariance / variance)

    def _at(self, num_tokens: int) -> float:
        """The seconds of a step of so many tokens."""
        if not self._weight:
            return 0.0
        return (
            max(0.0, self._seconds + (num_tokens * self._weight - self._num) * self._token_seconds)
            / self._weight
        )

    def price(self, num_requests: int, num_proposing: int, round_seconds: float) -> float:
        """What one more token of each of num_proposing requests costs, in tokens of a plain step.

        round_seconds: what proposing one for all of them takes.
        """
        plain = max(self._at(num_requests), num_requests * self._token_seconds)
        if not plain:
            return 0.0
        seconds = self._token_seconds + round_seconds / num_proposing
        return num_requests * seconds / plain


@dataclass
class KeptShare:
    """How likely the next proposed token of a request is to be kept, by how it went lately."""

    num_kept: float = 0.0
    num_tried: float = 0.0

    def note(self, num_kept: int, num_proposed: int) -> None:
        """Of num_proposed tokens the first num_kept were kept; past the next, nothing is known."""
        self.num_kept = _KEPT_MEMORY * self.num_kept + num_kept
        self.num_tried = _KEPT_MEMORY * self.num_tried + min(num_kept + 1, num_proposed)

    def idle(self) -> None:
        """Nothing was tried: what was learned ages, so that some time it is tried again."""
        self.num_kept *= _IDLE_MEMORY
        self.num_tried *= _IDLE_MEMORY

    @property
    def chance(self) -> float:
        """Of one token, given that those before it are kept."""
        kept = self.num_kept + _EXPECTED * _EXPECTED_WEIGHT
        return kept / (self.num_tried + _EXPECTED_WEIGHT)


def num_worth(chance: float, price: float, most: int) -> int:
    """How many tokens in a row are worth proposing: the j-th is kept with chance to the j-th."""
    number, likely = 0, chance
    while number < most and likely > price:
        number += 1
        likely *= chance
    return number
