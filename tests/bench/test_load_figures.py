"""Percentiles and rates of a case, and the prompts that it sends."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.case import EXTRA_CASES, MAIN_CASES, Case
from serving.figures import percentile, summarise
from serving.prompts import build_prompts


def answer(ttft: float, tpot: float | None, tokens: int = 2) -> dict[str, object]:
    return {
        "ttft_seconds": ttft,
        "tpot_seconds": tpot,
        "latency_seconds": 1.0,
        "output_tokens": tokens,
        "prompt_tokens": 8,
        "cached_tokens": None,
    }


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_the_percentiles_at_0_50_and_100_are_least_median_and_most(values: list[float]) -> None:
    found = [percentile(values, share) for share in (0, 50, 100)]
    assert found == pytest.approx([min(values), statistics.median(values), max(values)])


def test_a_percentile_between_two_values_is_interpolated() -> None:
    assert percentile([30.0, 10.0, 20.0], 75) == pytest.approx(25.0)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_figures_count_tokens_over_the_whole_time_and_name_what_went_wrong() -> None:
    heard = {
        "answers": [answer(0.1, 0.01), answer(0.3, None, tokens=1)],
        "errors": ["refused", "cut"],
        "seconds": 2.0,
        "client_cpu_seconds": 0.1,
    }
    figures = summarise(heard, asked_tokens=2)
    assert figures["output_tokens_per_s"] == 1.5
    assert figures["ttft_p50_ms"] == pytest.approx(200.0)
    assert figures["tpot_p99_ms"] == pytest.approx(10.0)
    assert (figures["num_errors"], figures["num_short"]) == (2, 1)
    assert (figures["first_error"], figures["cached_tokens"]) == ("refused", None)
    assert figures["client_cores"] == pytest.approx(0.05)


def test_a_case_without_answers_still_has_a_rate() -> None:
    heard = {"answers": [], "errors": ["x"], "seconds": 2.0, "client_cpu_seconds": 0.0}
    assert summarise(heard, 64)["output_tokens_per_s"] == 0


def test_prompts_share_what_the_case_says_and_no_seed_repeats_anothers() -> None:
    case = Case("c", 2, 5, prompt_tokens=9, output_tokens=3, shared_tokens=7)
    prompts = [prompt.split() for prompt in build_prompts(case, "0")]
    assert [len(words) for words in prompts] == [16] * 6
    assert len({tuple(words[:7]) for words in prompts}) == 1
    assert len({tuple(words[7:]) for words in prompts}) == 6
    assert build_prompts(case, "0") == build_prompts(case, "0")
    assert build_prompts(case, "1")[0].split()[:7] != prompts[0][:7]


@pytest.mark.parametrize("case", MAIN_CASES + EXTRA_CASES, ids=lambda case: case.name)
def test_a_shortened_case_keeps_every_client_busy_once(case: Case) -> None:
    short = case.shortened()
    assert case.num_clients <= short.num_requests <= case.num_requests
