"""Markdown of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from serving.bars import Samples, Verdict

_COLUMNS = (
    "server | out tok/s | TTFT p50 / p95 / p99 ms | TPOT p50 / p95 / p99 ms | prompt tokens "
    "(cached) | errors | RSS / PSS MiB | client's cores | others' cores"
)


def verdict_table(verdicts: Iterable[Verdict], ours: str) -> list[str]:
    """A row for each bar: our median, each peer's, the ratio with its spread, and the verdict."""
    rows = [*verdicts]
    peers = list(dict.fromkeys(name for verdict in rows for name in verdict.peers))
    lines = [_row(["case", *peers, ours, "ratio (least–most of the rounds)", "bar", ""])]
    lines.append(_row(["---"] + ["---:"] * (len(peers) + 2) + ["---", "---"]))
    for verdict in rows:
        cells = [_number(verdict.peers.get(peer)) for peer in peers]
        spread = f"({verdict.least:.2f}–{verdict.most:.2f})"
        own_unit = verdict.bound.endswith(verdict.unit)
        value = "" if own_unit else f"**{verdict.value:.2f}** {spread}"
        lines.append(
            _row(
                [
                    f"{verdict.title}, {verdict.unit}".replace("tokens/s, tok/s", "tokens/s"),
                    *cells,
                    _number(verdict.ours),
                    value,
                    verdict.bound,
                    "met" if verdict.is_met else "**missed**",
                ]
            )
        )
    return lines


def case_table(case: str, samples: Samples) -> list[str]:
    """A row for each server: medians over its rounds."""
    lines = [f"| {_COLUMNS} |", _row(["---"] + ["---:"] * _COLUMNS.count("|"))]
    for server, cases in samples.items():
        if rounds := cases.get(case):
            lines.append(_row([server, *_cells(rounds)]))
    return lines


def ready_table(ready_seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """A row for each server: the median of its starts, and all of them."""
    lines = ["| server | seconds to ready | starts |", "| --- | ---: | --- |"]
    for server, seconds in ready_seconds.items():
        starts = ", ".join(f"{one:.1f}" for one in seconds)
        lines.append(_row([server, f"{statistics.median(seconds):.1f}", starts]))
    return lines


def _cells(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    def median(key: str) -> float | None:
        values = [sample[key] for sample in rounds if sample.get(key) is not None]
        return statistics.median(values) if values else None

    def points(name: str) -> str:
        return " / ".join(_number(median(f"{name}_p{share}_ms")) for share in (50, 95, 99))

    num_errors = sum(sample["num_errors"] + sample["num_short"] for sample in rounds)
    mib = [(median(key) or 0) / 2**20 for key in ("peak_rss_bytes", "pss_bytes")]
    others = max(sample["other_cores"] + sample["stolen_cores"] for sample in rounds)
    return [
        _number(median("output_tokens_per_s")),
        points("ttft"),
        points("tpot"),
        f"{_number(median('prompt_tokens'))} ({_number(median('cached_tokens'))})",
        str(num_errors),
        f"{mib[0]:.0f} / {mib[1]:.0f}",
        f"{median('client_cores') or 0:.3f}",
        f"{others:.2f}",
    ]


def _number(value: float | None) -> str:
    """Three digits that count, or all before the point."""
    if value is None:
        return "–"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
