"""What was measured, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forebay_runtime.evaluating.bounds import Check
from forebay_runtime.evaluating.measures import Comparison, Measured

_WIDTHS = (17, 16, 16, 12)


def to_table(
    after: Measured, before: Measured | None, comparison: Comparison | None, checks: Sequence[Check]
) -> str:
    """Lines of columns: the other model, this one, and the change; then what became of bounds."""
    names = ("", "before", "after", "change") if before is not None else ("", "", "model", "")
    lines = [_line(names)]
    lines += [_line(row) for row in _rows(after, before, comparison)]
    for each in checks:
        held = "held" if each.is_held else "broken"
        lines.append(f"bound {each.name} {_percent(each.bound)}: {_percent(each.measured)}, {held}")
    if checks:
        is_held = all(each.is_held for each in checks)
        lines.append(f"verdict: {'within all bounds' if is_held else 'a bound is broken'}")
    return "\n".join(lines)


def _rows(
    after: Measured, before: Measured | None, comparison: Comparison | None
) -> Iterator[tuple[str, str, str, str]]:
    if after.perplexity is not None:
        other = before.perplexity if before is not None else None
        change = None if comparison is None else comparison.perplexity_increase
        yield (
            "perplexity",
            "" if other is None else f"{other:.3f}",
            f"{after.perplexity:.3f}",
            "" if change is None else f"{change:+.2%}",
        )
    if after.answers:
        count = len(after.answers)
        yield (
            "exact answers",
            "" if before is None else f"{before.num_right} of {count}",
            f"{after.num_right} of {count}",
            "" if before is None else f"{after.num_right - before.num_right:+d}",
        )
    if comparison is not None and comparison.agreement is not None:
        yield "token agreement", "", _percent(comparison.agreement), ""
    if comparison is not None and comparison.same_answers is not None:
        yield "same answers", "", _percent(comparison.same_answers), ""


def _line(cells: Sequence[str]) -> str:
    first, *rest = zip(cells, _WIDTHS, strict=True)
    return "".join(
        (first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest))
    ).rstrip()


def _percent(share: float) -> str:
    return f"{share:.1%}" if share == share else "not measured"


def to_document(
    after: Measured, before: Measured | None, comparison: Comparison | None, checks: Sequence[Check]
) -> dict[str, Any]:
    """The same as JSON, shares of one."""
    document: dict[str, Any] = {"model": _measured(after)}
    if before is not None and comparison is not None:
        document["against"] = _measured(before)
        document["comparison"] = {
            "perplexity_increase": comparison.perplexity_increase,
            "token_agreement": comparison.agreement,
            "same_answers": comparison.same_answers,
            "lost_answers": comparison.num_lost,
        }
    document["bounds"] = [
        {
            "name": each.name,
            "bound": each.bound,
            "measured": each.measured if each.measured == each.measured else None,
            "held": each.is_held,
        }
        for each in checks
    ]
    document["verdict"] = "pass" if all(each.is_held for each in checks) else "fail"
    return document


def _measured(measured: Measured) -> dict[str, Any]:
    return {
        "perplexity": measured.perplexity,
        "tokens": measured.num_tokens,
        "questions": len(measured.answers),
        "exact_answers": measured.num_right,
        "answers": [{"said": each.said, "right": each.is_right} for each in measured.answers],
    }
