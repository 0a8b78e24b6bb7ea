"""What a case's answers come to: rates, percentiles, and whether anything went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_PERCENTILES = (50, 95, 99)


def percentile(values: Iterable[float], share: float) -> float:
    """Of the sorted values, interpolated between the two that are nearest; share is 0 to 100.

    Raises: ValueError where there are none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there is no percentile of no values")
    rank = (len(ordered) - 1) * share / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def summarise(heard: dict[str, Any], asked_tokens: int) -> dict[str, Any]:
    """The figures of one case, from what the client printed; times in milliseconds."""
    answers: Sequence[dict[str, Any]] = heard["answers"]
    seconds = heard["seconds"]
    output_tokens = sum(answer["output_tokens"] for answer in answers)
    figures: dict[str, Any] = {
        "output_tokens_per_s": output_tokens / seconds,
        "requests_per_s": len(answers) / seconds,
        "prompt_tokens": _mean(answers, "prompt_tokens"),
        "cached_tokens": _mean(answers, "cached_tokens"),
        "num_short": sum(answer["output_tokens"] != asked_tokens for answer in answers),
        "num_errors": len(heard["errors"]),
        "first_error": next(iter(heard["errors"]), None),
        "client_cores": heard["client_cpu_seconds"] / seconds,
        "seconds": seconds,
    }
    for name in ("ttft", "tpot", "latency"):
        times = [
            1e3 * answer[f"{name}_seconds"]
            for answer in answers
            if answer[f"{name}_seconds"] is not None
        ]
        for share in _PERCENTILES if times else ():
            figures[f"{name}_p{share}_ms"] = percentile(times, share)
    return figures


def _mean(answers: Sequence[dict[str, Any]], key: str) -> float | None:
    values = [answer[key] for answer in answers if answer[key] is not None]
    return sum(values) / len(values) if values else None
