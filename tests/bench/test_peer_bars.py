"""Verdicts on bars: ratios within a round, their median, and what makes a round worth nothing."""

from typing import Any

import pytest
from serving.bars import RATE, TPOT, Bar, Limit, judge, judge_limit, level_bars, peak_memory
from serving.history import compare
from serving.rounds import rotated
from serving.table import case_table, ready_table, verdict_table

FASTER = Bar("rate", "c1", RATE, 1.3)
SOONER = Bar("tpot", "c1", TPOT, 0.75)


def sample(rate: float, tpot: float = 1.0, **more: Any) -> dict[str, Any]:
    kept = {"num_errors": 0, "num_short": 0, "peak_rss_bytes": 2**30, "pss_bytes": 2**29}
    noise = {"other_cores": 0.1, "stolen_cores": 0.0, "client_cores": 0.02}
    return {RATE: rate, TPOT: tpot, **kept, **noise, **more}


def rounds(*rates: float) -> dict[str, list[dict[str, Any]]]:
    return {"c1": [sample(rate, 100 / rate) for rate in rates]}


SAMPLES = {"us": rounds(20, 30, 28), "a": rounds(10, 10, 20), "b": rounds(8, 20, 10)}


def test_each_rounds_ratio_is_to_the_peer_that_was_best_in_it() -> None:
    verdict = judge(FASTER, "us", ["a", "b"], SAMPLES)
    assert verdict is not None
    assert (verdict.value, verdict.least, verdict.most) == (1.5, 1.4, 2.0)
    assert (verdict.ours, verdict.peers) == (28, {"a": 10, "b": 10})
    assert verdict.is_met


def test_where_less_is_better_the_best_peer_is_the_least() -> None:
    verdict = judge(SOONER, "us", ["a", "b"], SAMPLES)
    assert verdict is not None
    assert verdict.value == pytest.approx(2 / 3)
    assert verdict.is_met


@pytest.mark.parametrize(
    ("rate", "is_met"), [(1.29, False), (1.3, True)], ids=["just below", "at the bar"]
)
def test_a_bar_is_met_where_it_is_reached(rate: float, is_met: bool) -> None:
    verdict = judge(FASTER, "us", ["a"], {"us": rounds(rate), "a": rounds(1.0)})
    assert verdict is not None
    assert verdict.is_met is is_met


@pytest.mark.parametrize("wrong", ["num_errors", "num_short"])
@pytest.mark.parametrize("bar", [FASTER, SOONER], ids=["rate", "time"])
def test_a_server_that_answers_wrongly_wins_no_round(bar: Bar, wrong: str) -> None:
    fast_and_wrong = {"c1": [sample(1000, 0.001, **{wrong: 1})]}
    verdict = judge(bar, "us", ["a"], {"us": fast_and_wrong, "a": rounds(1)})
    assert verdict is not None
    assert not verdict.is_met


@pytest.mark.parametrize(
    "samples",
    [{"us": rounds(1)}, {"a": rounds(1)}, {}],
    ids=["no peer ran", "we did not run", "nothing ran"],
)
def test_without_both_sides_there_is_no_verdict(samples: Any) -> None:
    assert judge(FASTER, "us", ["a"], samples) is None


def test_a_limit_is_on_the_median_of_our_own_values() -> None:
    limit = Limit("ready", "ready_seconds", 5.0, "s")
    verdict = judge_limit(limit, "us", {"us": [4.0, 9.0, 5.0], "a": [80.0]})
    assert verdict is not None
    assert (verdict.value, verdict.peers, verdict.is_met) == (5.0, {"a": 80.0}, True)
    assert judge_limit(limit, "us", {"a": [80.0]}) is None


def test_peak_memory_is_the_most_of_any_case_and_round() -> None:
    samples = {"us": {"c1": [sample(1)], "c8": [sample(1, peak_rss_bytes=3 * 2**30)]}}
    assert peak_memory(samples) == {"us": [3 * 2**30]}


def test_in_its_own_class_every_case_is_held_to_the_best_and_one_client_to_times_too() -> None:
    bars = level_bars(["c1", "c32"])
    assert [(bar.case, bar.figure) for bar in bars] == [
        ("c1", RATE),
        ("c1", TPOT),
        ("c1", "ttft_p50_ms"),
        ("c32", RATE),
    ]
    assert {bar.bound for bar in bars} == {1.0}


@pytest.mark.parametrize(("index", "order"), [(0, "abc"), (1, "bca"), (2, "cab"), (3, "abc")])
def test_each_round_begins_at_another_server(index: int, order: str) -> None:
    assert "".join(rotated(["a", "b", "c"], index)) == order


def test_tables_have_as_many_cells_in_each_row_as_in_their_head() -> None:
    verdict = judge(FASTER, "us", ["a", "b"], SAMPLES)
    limit = judge_limit(Limit("ready", "r", 5.0, "s"), "us", {"us": [4.0], "b": [9.0]})
    assert verdict is not None and limit is not None
    tables = [
        verdict_table([verdict, limit], "us"),
        case_table("c1", SAMPLES),
        ready_table({"us": [1.0, 3.0, 2.0]}),
    ]
    for lines in tables:
        assert len({line.count("|") for line in lines}) == 1
    assert "| **1.50** (1.40–2.00) | ≥ 1.3× | met |" in tables[0][2]
    assert tables[0][3].startswith("| ready, s | – | 9.00 | 4.00 |")
    assert tables[2][-1] == "| us | 2.0 | 1.0, 3.0, 2.0 |"


def test_two_reports_are_compared_by_what_both_have() -> None:
    def report(ratio: float, servers: dict[str, Any]) -> dict[str, Any]:
        verdicts = [{"title": "rate", "value": ratio}]
        return {"groups": {"bars": {"verdicts": verdicts, "samples": servers}}}

    now = report(1.5, {"us": rounds(30, 10, 20), "new": rounds(1)})
    text = "\n".join(compare(now, report(1.2, {"us": rounds(10)})))
    assert "| bars: rate | 1.20 | 1.50 | 1.25 |" in text
    assert "| bars: us, c1 | 10.00 | 20.00 | 2.00 |" in text
    assert "new" not in text
