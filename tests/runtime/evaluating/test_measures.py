"""Perplexity, agreement and lost answers are what their names say, and bounds hold or break."""

import math

import pytest

from forebay_runtime.evaluating.bounds import Bounds
from forebay_runtime.evaluating.measures import Answered, Measured, Scored, check, compare
from forebay_runtime.evaluating.table import to_document, to_table


def measured(halves: int, best: tuple[int, ...], *rights: bool) -> Measured:
    """Tokens each as likely as so many halves say; answers that differ where they are wrong."""
    texts = (Scored((-halves * math.log(2),) * 4, best),)
    answers = tuple(Answered("", (1 if right else 2,), right) for right in rights)
    return Measured(texts, answers)


BEFORE = measured(2, (1, 2, 3, 4), True, True, False)
AFTER = measured(3, (1, 2, 3, 5), False, True, True)


def test_a_model_beside_another() -> None:
    assert BEFORE.perplexity == pytest.approx(4)
    comparison = compare(AFTER, BEFORE)
    assert comparison.perplexity_increase == pytest.approx(1)
    assert comparison.agreement == 3 / 4
    assert comparison.same_answers == 1 / 3
    assert comparison.num_lost == 1


@pytest.mark.parametrize(
    ("bounds", "held"),
    [
        pytest.param(Bounds(), [], id="none"),
        pytest.param(Bounds(1.01, 0.34, 0.6, 0.75), [True, True, True, True], id="all-held"),
        pytest.param(Bounds(perplexity_increase=0.99), [False], id="perplexity"),
        pytest.param(Bounds(lost_answers=0.3), [False], id="answers-lost"),
        pytest.param(Bounds(least_exact=0.7), [False], id="exact-answers"),
        pytest.param(Bounds(least_agreement=0.76), [False], id="agreement"),
    ],
)
def test_bounds_hold_or_break(bounds: Bounds, held: list[bool]) -> None:
    checks = check(AFTER, compare(AFTER, BEFORE), bounds)
    assert [each.is_held for each in checks] == held
    text = to_table(AFTER, BEFORE, compare(AFTER, BEFORE), checks)
    assert ("a bound is broken" in text) is (False in held)
    document = to_document(AFTER, BEFORE, compare(AFTER, BEFORE), checks)
    assert document["verdict"] == ("fail" if False in held else "pass")


def test_what_was_not_measured_holds_no_bound() -> None:
    checks = check(Measured(), compare(Measured(), Measured()), Bounds(0.1, least_exact=0.5))
    assert [each.is_held for each in checks] == [False, False]
    assert "not measured, broken" in to_table(Measured(), None, None, checks)


def test_a_perplexity_beyond_all_numbers_is_infinite() -> None:
    assert Measured([Scored((-1e4,), (0,))]).perplexity == math.inf
