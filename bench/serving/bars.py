"""What is compared, by which bar, and whether it is met: arithmetic on samples alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RATE, TPOT, TTFT = "output_tokens_per_s", "tpot_p50_ms", "ttft_p50_ms"
MEMORY = "peak_rss_bytes"
READY = "ready_seconds"
Samples = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""By server, then case: one sample a round."""


@dataclass(frozen=True)
class Bar:
    """Our figure over the best of the peers', held to a bound; more is better for rates alone."""

    title: str
    case: str
    figure: str
    bound: float

    @property
    def is_more_better(self) -> bool:
        """Of the figure, and so of the ratio."""
        return self.figure == RATE


@dataclass(frozen=True)
class Limit:
    """Our own figure held to a most, whatever the peers' is."""

    title: str
    figure: str
    most: float
    unit: str
    scale: float = 1.0


@dataclass(frozen=True)
class Verdict:
    """A bar's outcome; ratios over the rounds, or for a limit the values themselves."""

    title: str
    bound: str
    ours: float
    peers: dict[str, float]
    value: float
    least: float
    most: float
    is_met: bool
    unit: str

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


BARS = (
    Bar("1 client, output tokens/s", "c1", RATE, 1.3),
    Bar("1 client, TPOT p50", "c1", TPOT, 0.75),
    Bar("1 client, TTFT p50", "c1", TTFT, 0.8),
    Bar("8 clients, output tokens/s", "c8", RATE, 1.5),
    Bar("32 clients, output tokens/s", "c32", RATE, 1.5),
    Bar("1,024 shared + 64 own prompt tokens, 4 clients, output tokens/s", "prefix", RATE, 1.5),
)
LIMITS = (
    Limit("seconds to ready", READY, 5.0, "s"),
    Limit("memory under load (RSS of all processes)", MEMORY, 1.5, "GB", 1e9),
)
"""Of the server that is held to BARS."""


def level_bars(cases: Iterable[str]) -> tuple[Bar, ...]:
    """Never behind the best of a precision's own class."""
    titles = {bar.case: bar.title.rpartition(",")[0] for bar in BARS if bar.figure == RATE}
    found = []
    for case in cases:
        title = titles.get(case, case)
        found.append(Bar(f"{title}, output tokens/s", case, RATE, 1.0))
        if case == "c1":
            found.append(Bar(f"{title}, TPOT p50", case, TPOT, 1.0))
            found.append(Bar(f"{title}, TTFT p50", case, TTFT, 1.0))
    return tuple(found)


def judge(bar: Bar, ours: str, peers: Iterable[str], samples: Samples) -> Verdict | None:
    """The bar's verdict by the median of the rounds' ratios; None where nothing was measured.

    In each round we are held to the peer that was best in it.
    """
    own = _values(samples, ours, bar)
    theirs = {peer: found for peer in peers if (found := _values(samples, peer, bar))}
    num_rounds = min([len(own), *map(len, theirs.values())])
    if not theirs or not num_rounds:
        return None
    best: Callable[..., float] = max if bar.is_more_better else min
    ratios = [
        own[index] / best(found[index] for found in theirs.values()) for index in range(num_rounds)
    ]
    ratio = statistics.median(ratios)
    is_met = ratio >= bar.bound if bar.is_more_better else ratio <= bar.bound
    unit = "tok/s" if bar.is_more_better else "ms"
    return Verdict(
        title=bar.title,
        bound=f"{'≥' if bar.is_more_better else '≤'} {bar.bound:g}×",
        ours=statistics.median(own),
        peers={peer: statistics.median(found) for peer, found in theirs.items()},
        value=ratio,
        least=min(ratios),
        most=max(ratios),
        is_met=is_met,
        unit=unit,
    )


def judge_limit(limit: Limit, ours: str, values: Mapping[str, Sequence[float]]) -> Verdict | None:
    """The limit's verdict, by the median of our values; peers' medians stand beside it."""
    own = [value / limit.scale for value in values.get(ours, ())]
    if not own:
        return None
    medians = {name: statistics.median(found) / limit.scale for name, found in values.items()}
    value = medians.pop(ours)
    return Verdict(
        title=limit.title,
        bound=f"≤ {limit.most:g} {limit.unit}",
        ours=value,
        peers=medians,
        value=value,
        least=min(own),
        most=max(own),
        is_met=value <= limit.most,
        unit=limit.unit,
    )


def peak_memory(samples: Samples) -> dict[str, list[float]]:
    """By server, the most that it took in any case and round, as a list of one."""
    found = {}
    for name, cases in samples.items():
        peaks = [sample[MEMORY] for rounds in cases.values() for sample in rounds]
        if peaks:
            found[name] = [float(max(peaks))]
    return found


def _values(samples: Samples, server: str, bar: Bar) -> list[float]:
    """A figure's value in each round; an answer that failed or was cut makes its round worth none.

    A server that answers with errors is fast, and must not win by it.
    """
    worthless = 0.0 if bar.is_more_better else float("inf")
    return [
        worthless if sample["num_errors"] or sample["num_short"] else float(sample[bar.figure])
        for sample in samples.get(server, {}).get(bar.case, ())
    ]
