"""What followed a text's last tokens the last time they came."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.speculative.ngram import NgramProposer


def guess(
    prompt: Sequence[int], output: Sequence[int], number: int = 3, least: int = 2, most: int = 4
) -> tuple[int, ...]:
    proposer = NgramProposer(least, most)
    request = Request("", list(prompt), SamplingParams(100))
    request.output_token_ids += output
    if not proposer.num_ready(request, number):
        return ()
    return proposer.propose([(request, number)])[0]


CASES: dict[str, tuple[list[int], list[int], tuple[int, ...]]] = {
    "what followed in the prompt": ([1, 2, 3, 4, 5, 9], [1, 2], (3, 4, 5)),
    "what followed last": ([1, 2, 3, 1, 2, 4, 8], [1, 2], (4, 8, 1)),
    "the longest n-gram decides": ([7, 1, 2, 3, 1, 2, 4, 8], [7, 1, 2], (3, 1, 2)),
    "an n-gram over prompt and answer": ([1, 2, 3, 4, 9, 1], [2], (3, 4, 9)),
    "the end goes on with itself": ([5, 6, 5, 6], [5], (6, 5, 6)),
    "one token over and over": ([8, 8], [8], (8, 8, 8)),
    "nothing came before": ([1, 2, 3], [4], ()),
    "one token is too few": ([1, 2, 3], [1], ()),
    "a text shorter than an n-gram": ([1], [], ()),
}


@pytest.mark.parametrize(("prompt", "output", "expected"), CASES.values(), ids=CASES)
def test_it_guesses(prompt: list[int], output: list[int], expected: tuple[int, ...]) -> None:
    assert guess(prompt, output) == expected


def slow_guess(text: list[int], number: int, least: int, most: int) -> tuple[int, ...]:
    """The same, by looking at every place."""
    for size in range(most, least - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[len(text) - size :]:
                found = text[end : end + number]
                period = len(text) - end
                return tuple(found[place % period] for place in range(number))
    return ()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=8),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_it_finds_what_a_search_of_the_whole_text_finds(
    prompt: list[int], steps: list[list[int]], least: int, more: int
) -> None:
    proposer = NgramProposer(least, least + more)
    request = Request("", prompt, SamplingParams(100))
    for step in steps:
        request.output_token_ids += step
        text = prompt + request.output_token_ids
        found = ()
        if proposer.num_ready(request, 5):
            [found] = proposer.propose([(request, 5)])
        assert found == slow_guess(text, 5, least, least + more)


def test_a_step_of_a_long_text_calls_as_little_as_one_of_a_short_text() -> None:
    def count_calls(num_prompt_tokens: int) -> int:
        proposer = NgramProposer(2, 4)
        request = Request(
            "", [place % 997 for place in range(num_prompt_tokens)], SamplingParams(9)
        )
        proposer.num_ready(request, 4)
        request.output_token_ids.append(0)
        calls = 0

        def count(_: Any, event: str, __: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            proposer.num_ready(request, 4)
            proposer.propose([(request, 4)])
        finally:
            sys.setprofile(None)
        return calls

    assert count_calls(20_000) <= count_calls(2_000) < 100
