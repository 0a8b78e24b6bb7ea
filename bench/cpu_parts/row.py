"""A line of the table: a time, and what share of the machine's limits it comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cpu_parts.limits import Limits

_HEAD = (
    "what | batch | µs | GB/s | of memory's rate | of the rate at the weights' size | "
    "Gop/s | of the peak | torch's time / ours"
)


@dataclass(frozen=True)
class Row:
    """num_bytes and num_operations are those that cannot be avoided; kind: whose peak it is.

    torch_seconds: of torch's operator for the same numbers in float32 or bf16, where there is one.
    """

    part: str
    what: str
    batch: int
    seconds: float
    num_bytes: int
    num_operations: int
    kind: str
    torch_seconds: float | None = None

    def shares(self, limits: Limits) -> dict[str, float]:
        """Of each limit, by its name."""
        rate = self.num_bytes / self.seconds
        return {
            "bandwidth": rate / limits.bandwidth,
            "bandwidth_at_weights_size": rate / limits.read_bytes[min(limits.read_bytes)],
            "peak": self.num_operations / self.seconds / limits.peak(self.kind),
        }

    def to_document(self, limits: Limits) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "shares": self.shares(limits)}

    def line(self, limits: Limits) -> str:
        """For a table."""
        shares = self.shares(limits)
        ratio = "–" if self.torch_seconds is None else f"{self.torch_seconds / self.seconds:.2f}"
        cells = [
            self.what,
            str(self.batch),
            f"{1e6 * self.seconds:.0f}",
            f"{self.num_bytes / self.seconds / 1e9:.1f}",
            f"{shares['bandwidth']:.0%}",
            f"{shares['bandwidth_at_weights_size']:.0%}",
            f"{self.num_operations / self.seconds / 1e9:.0f}",
            f"{shares['peak']:.0%} of {self.kind}",
            ratio,
        ]
        return f"| {' | '.join(cells)} |"


def table_of(rows: Iterable[Row], limits: Limits) -> list[str]:
    """Markdown."""
    rule = "| --- |" + " ---: |" * _HEAD.count("|")
    return [f"| {_HEAD} |", rule, *(row.line(limits) for row in rows)]


def table_of_limits(all_limits: Iterable[Limits]) -> list[str]:
    """Markdown: what each number of threads can do."""
    lines = ["| threads | limit | by our loop | by torch |", "| ---: | --- | ---: | ---: |"]
    for limits in all_limits:
        for num_bytes, rate in sorted(limits.read_bytes.items()):
            what = f"read of {num_bytes / 2**20:.0f} MiB, GB/s"
            lines.append(f"| {limits.num_threads} | {what} | {rate / 1e9:.1f} | – |")
        for kind, torch_peak in limits.torch_peaks.items():
            own = limits.peaks.get(kind, 0.0) / 1e9
            lines.append(
                f"| {limits.num_threads} | {kind}, Gop/s | {own:.0f} | {torch_peak / 1e9:.0f} |"
            )
    return lines
