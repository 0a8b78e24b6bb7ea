"""A measured number, and the bar that it is held to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """name says what was measured and at which size; least and most are bars, where there are."""

    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def verdict(self) -> str:
        """Met, MISSED, or nothing where there is no bar."""
        if self.least is None and self.most is None:
            return ""
        is_low = self.least is not None and not self.value >= self.least
        is_high = self.most is not None and not self.value <= self.most
        return "MISSED" if is_low or is_high else "met"

    @property
    def bar(self) -> str:
        """The bar in words."""
        least = "" if self.least is None else f">= {self.least:g}"
        return least if self.most is None else f"{least} <= {self.most:g}".strip()

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "verdict": self.verdict}
