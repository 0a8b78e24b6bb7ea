"""What the operator remembers about a service between two decisions; lost with the process on
purpose."""

from dataclasses import dataclass, field

from forebay_operator.applied import Applied
from forebay_operator.observed import Object, ScalingMemory
from forebay_operator.store import Written


@dataclass
class Memory:
    """One service's."""

    uid: str
    scaling: ScalingMemory
    applied: dict[tuple[str, str], Applied] = field(default_factory=dict)
    """By kind and name."""
    written: list[Written] = field(default_factory=list)
    """Writes that the store has not seen yet."""
    written_at: float = 0.0
    """Monotonic time of the last of them."""
    num_passing: int = 0
    """How often in a row a child was not taken for a reason that should have passed."""
    told: tuple[str, str] = ("", "")
    """Digests of the status as it was written last, and of what the API server made of it."""
    untold_since: float | None = None
    """Monotonic time since which a status waits to be written; None while none does."""
    posted: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Monotonic time by what an Event said."""
    asked_for: set[str] = field(default_factory=set)
    """Uids of finished Jobs whose pods were asked for."""
    warnings: tuple[Object, ...] = ()
