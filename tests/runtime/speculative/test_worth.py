"""How many tokens are proposed, by what a step costs and how often guesses are kept."""

from itertools import product

import pytest

from forebay_runtime.speculative.worth import KeptShare, StepCost, num_worth

CASES = {
    "a row costs nothing": (0.5, 0.0, 8, 8),
    "a row costs a token": (0.99, 1.0, 8, 0),
    "half are kept at a tenth": (0.5, 0.1, 8, 3),
    "nothing is ever kept": (0.0, 0.0, 8, 0),
    "no room": (0.9, 0.0, 0, 0),
}


@pytest.mark.parametrize(("chance", "price", "most", "number"), CASES.values(), ids=CASES)
def test_a_guess_is_worth_its_price(chance: float, price: float, most: int, number: int) -> None:
    assert num_worth(chance, price, most) == number


def learned(base: float, each: float) -> StepCost:
    cost = StepCost()
    for num_tokens in (1, 6, 2, 8, 1, 4, 6) * 10:
        cost.note(num_tokens, base + each * num_tokens)
    return cost


def test_prices_are_those_of_the_steps_that_were_run() -> None:
    cost = learned(0.010, 0.001)
    assert cost.price(1, 1, 0.0) == pytest.approx(1 / 11)
    assert cost.price(10, 10, 0.0) == pytest.approx(10 / 20)
    assert cost.price(90, 90, 0.0) == pytest.approx(90 / 100)
    # A round of a draft model is shared by those that it guesses for.
    assert cost.price(10, 5, 0.005) == pytest.approx(10 * 2 / 20)


def test_before_anything_was_run_a_guess_is_tried() -> None:
    assert StepCost().price(4, 4, 0.0) == 0


def test_steps_of_one_size_tell_nothing_of_what_one_more_token_costs() -> None:
    cost = StepCost()
    for _ in range(100):
        cost.note(4, 0.02)
    assert cost.price(4, 4, 0.0) == 0


def test_a_step_that_was_disturbed_changes_little() -> None:
    cost = learned(0.010, 0.001)
    cost.note(1, 5.0)
    assert cost.price(1, 1, 0.0) < 0.15


def test_a_step_with_guesses_that_are_worth_it_makes_no_fewer_tokens_a_second() -> None:
    for base, each, requests, chance in product(
        (0.0, 0.002, 0.01), (0.0001, 0.001, 0.004), (1, 4, 32), (0.05, 0.4, 0.7, 0.95)
    ):
        number = num_worth(chance, learned(base, each).price(requests, requests, 0.0), 8)
        gained = sum(chance**place for place in range(1, number + 1))
        plain = requests / (base + each * requests)
        guessed = requests * (1 + gained) / (base + each * requests * (1 + number))
        assert guessed >= plain * 0.999


def test_a_request_whose_guesses_fail_gets_none_and_later_tries_again() -> None:
    share = KeptShare()
    for _ in range(10):
        share.note(0, 4)
    assert num_worth(share.chance, 0.2, 4) == 0
    for _ in range(300):
        share.idle()
    assert num_worth(share.chance, 0.2, 4) > 0


def test_guesses_after_one_that_was_not_kept_tell_nothing() -> None:
    early, late = KeptShare(), KeptShare()
    early.note(0, 1)
    late.note(0, 8)
    assert early.chance == late.chance
