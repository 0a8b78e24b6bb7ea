"""The form of a launch table, and how one is looked up."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from forebay_kernels.gpu.architecture import KIB, Architecture
from forebay_kernels.gpu.variant import Launch

Fact = str | int | bool
Wanted = Fact | Container[Fact]


@dataclass(frozen=True)
class Row:
    """A launch and where it holds.

    generations: of architectures ("sm_90"); none: all. when: for each fact that matters its value,
    or a tuple or range of values.
    """

    launch: Launch
    generations: tuple[str, ...] = ()
    when: Mapping[str, Wanted] = field(default_factory=dict)

    def holds(self, architecture: Architecture, facts: Mapping[str, Fact]) -> bool:
        """Is the row made for this, and does the architecture have the memory that it takes?"""
        if self.generations and architecture.generation not in self.generations:
            return False
        if self.launch.shared_bytes > architecture.shared_bytes:
            return False
        return all(_matches(facts[name], wanted) for name, wanted in self.when.items())


def _matches(fact: Fact, wanted: Wanted) -> bool:
    if isinstance(wanted, str | int):
        return fact == wanted
    return fact in wanted


@dataclass(frozen=True)
class LaunchTable:
    """Rows from the most special to the most general; the first that holds is taken.

    kernel: its name, for messages. The last row must hold anywhere: no condition, no generation,
    and no more shared memory than every architecture has.
    """

    kernel: str
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        """Refuse a table that some device would find nothing in.

        Raises: ValueError.
        """
        last = self.rows[-1]
        if last.generations or last.when or last.launch.shared_bytes > 48 * KIB:
            raise ValueError(f"the last row of {self.kernel}'s launch table does not hold anywhere")

    def choose(self, architecture: Architecture, **facts: Fact) -> Launch:
        """The launch for an architecture and what is known of a call (head_dim=128, dtype="bf16").

        Raises: KeyError if a row asks for a fact that is not given.
        """
        return self.row(architecture, **facts).launch

    def row(self, architecture: Architecture, **facts: Fact) -> Row:
        """The row that choose takes its launch from."""
        return next(row for row in self.rows if row.holds(architecture, facts))
