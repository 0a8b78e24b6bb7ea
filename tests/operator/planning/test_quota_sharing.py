"""How a budget is shared out: what runs stays, what was granted stays, the oldest goes first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_operator.planning.quota.sharing import Claimant, share_out


def one(name: str, claimed: int, running: int = 0, granted: int = 0) -> Claimant:
    """A claimant that is older, the earlier its name is in the alphabet."""
    return Claimant(f"2026-01-01T00:00:{ord(name) - ord('a'):02}Z", name, claimed, running, granted)


@pytest.mark.parametrize(
    ("budget", "claimants", "granted"),
    [
        (100, [one("a", 60), one("b", 40)], {"a": 60, "b": 40}),
        (100, [one("b", 60), one("a", 60)], {"a": 60, "b": 0}),
        (100, [one("a", 60), one("b", 60), one("c", 40)], {"a": 60, "b": 0, "c": 40}),
        (100, [one("a", 101), one("b", 100)], {"a": 0, "b": 100}),
        (0, [one("a", 1), one("b", 0)], {"a": 0, "b": 0}),
        (100, [one("a", 60), one("b", 60, 60, 60)], {"a": 0, "b": 60}),
        (100, [one("a", 60), one("b", 60, 20, 60)], {"a": 0, "b": 60}),
        (100, [one("a", 80, 40, 40), one("b", 40, 40, 40)], {"a": 40, "b": 40}),
        (120, [one("a", 80, 40, 40), one("b", 40, 40, 40)], {"a": 80, "b": 40}),
        (100, [one("a", 20, 60, 60), one("b", 60)], {"a": 60, "b": 0}),
        (100, [one("a", 20, 20, 60), one("b", 60)], {"a": 20, "b": 60}),
        (50, [one("a", 60, 60, 60), one("b", 40, 40, 40)], {"a": 60, "b": 40}),
        (50, [one("a", 60, 20, 60), one("b", 40, 20, 40)], {"a": 20, "b": 20}),
        (90, [one("a", 60, 20, 60), one("b", 40, 20, 40)], {"a": 60, "b": 20}),
        (100, [one("a", 60, 60), one("b", 60, 60)], {"a": 60, "b": 60}),
    ],
    ids=[
        "all that fits is granted",
        "of two that do not fit together the older one starts",
        "one that does not fit holds up no younger one",
        "one that can never fit holds up nobody",
        "a budget of nothing grants nothing",
        "an older newcomer does not push out what runs",
        "nor what was granted and does not run yet",
        "who grows beyond keeps what it has",
        "and grows when there is room",
        "who asks for less holds what runs until it is gone",
        "and frees the rest at once",
        "a lowered budget stops nothing that runs",
        "and takes back what is granted and does not run",
        "from the younger first",
        "a budget that comes later finds what runs",
    ],
)
def test_a_budget_is_shared_out(
    budget: int, claimants: list[Claimant], granted: dict[str, int]
) -> None:
    assert share_out(budget, claimants) == granted


def test_services_of_one_second_are_told_apart_by_name() -> None:
    twins = [Claimant("2026-01-01T00:00:00Z", name, 60) for name in ("b", "a")]
    assert share_out(100, twins) == {"a": 60, "b": 0}


NUMBERS = st.integers(0, 60)
CLAIMANTS = st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(NUMBERS, NUMBERS, NUMBERS)).map(
    lambda found: [one(name, *numbers) for name, numbers in found.items()]
)


@given(st.integers(0, 200), CLAIMANTS, st.randoms())
def test_whatever_is_asked_in_whatever_order(
    budget: int, claimants: list[Claimant], chance: Any
) -> None:
    granted = share_out(budget, claimants)
    running = sum(each.running_bytes for each in claimants)
    assert sum(granted.values()) <= max(budget, running)
    assert all(granted[each.name] >= each.running_bytes for each in claimants)
    chance.shuffle(claimants)
    assert share_out(budget, claimants) == granted
    again = [
        Claimant(
            each.created, each.name, each.claimed_bytes, each.running_bytes, granted[each.name]
        )
        for each in claimants
    ]
    assert share_out(budget, again) == granted


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abcde"), NUMBERS),
        st.tuples(st.just("go"), st.sampled_from("abcde"), st.just(0)),
        st.tuples(st.just("budget"), st.just(""), st.integers(0, 120)),
    ),
    max_size=25,
)


@given(EVENTS)
def test_after_any_history_no_more_is_granted_than_the_budget_or_what_ran_before(
    events: list[tuple[str, str, int]],
) -> None:
    """Services start and grow to all that they are granted at once, and never beyond."""
    budget, claims, running, granted = 100, dict[str, int](), dict[str, int](), dict[str, int]()
    for what, name, number in events:
        before = sum(running.values())
        if what == "budget":
            budget = number
        elif what == "ask":
            claims[name] = number
        else:
            for book in (claims, running, granted):
                book.pop(name, None)
        granted = share_out(
            budget,
            [
                one(each, claims[each], running.get(each, 0), granted.get(each, 0))
                for each in claims
            ],
        )
        assert all(granted[each] >= held for each, held in running.items())
        running = {each: min(claims[each], granted[each]) for each in claims}
        assert sum(running.values()) <= max(budget, before)
