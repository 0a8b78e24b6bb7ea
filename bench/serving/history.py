"""Two reports side by side: what the same command found at another time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any


def compare(now: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    """A Markdown row for each bar of both, then one for each server's rate in each case of both.

    Seconds of two days differ by the machine's mood; ratios to the peers of the same run do not.
    """
    lines = ["| bar | earlier | now | now / earlier |", "| --- | ---: | ---: | ---: |"]
    before = _ratios(earlier)
    for title, value in _ratios(now).items():
        lines += _compared(title, before.get(title), value)
    lines += ["", "| output tokens/s | earlier | now | now / earlier |"]
    lines.append("| --- | ---: | ---: | ---: |")
    before = _rates(earlier)
    for title, value in _rates(now).items():
        lines += _compared(title, before.get(title), value)
    return lines


def _compared(title: str, before: float | None, now: float) -> list[str]:
    if not before:
        return []
    return [f"| {title} | {before:.2f} | {now:.2f} | {now / before:.2f} |"]


def _ratios(report: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{group}: {verdict['title']}": verdict["value"]
        for group, found in report["groups"].items()
        for verdict in found["verdicts"]
    }


def _rates(report: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{group}: {server}, {case}": statistics.median(
            sample["output_tokens_per_s"] for sample in rounds
        )
        for group, found in report["groups"].items()
        for server, cases in found["samples"].items()
        for case, rounds in cases.items()
    }
