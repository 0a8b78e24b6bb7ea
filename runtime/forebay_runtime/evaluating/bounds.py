"""How far a model may fall behind, and whether it did. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Shares, of one; None where nothing was asked.

    perplexity_increase and lost_answers are against the other model; least_exact and
    least_agreement are of this one, and of the places where both choose alike.
    """

    perplexity_increase: float | None = None
    lost_answers: float | None = None
    least_exact: float | None = None
    least_agreement: float | None = None

    @property
    def needs_other(self) -> bool:
        """Does any compare with another model?"""
        against = (self.perplexity_increase, self.lost_answers, self.least_agreement)
        return any(bound is not None for bound in against)


@dataclass(frozen=True)
class Check:
    """One bound beside what was measured; shares, of one."""

    name: str
    bound: float
    measured: float
    is_held: bool
