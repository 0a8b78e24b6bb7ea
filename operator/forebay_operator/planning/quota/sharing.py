"""How a budget of VRAM is shared out: pure arithmetic over what services ask for and have."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Claimant:
    """One service that asks for VRAM."""

    created: str
    """Its creation time; RFC 3339, so that the older one is the lesser."""
    name: str
    claimed_bytes: int
    """At its most replicas."""
    running_bytes: int = 0
    """What its Deployment is set to now."""
    granted_bytes: int = 0
    """What it was granted before."""


def share_out(budget_bytes: int, claimants: Iterable[Claimant]) -> dict[str, int]:
    """What each service is granted, by name; all that it asks for, or nothing more than it has.

    1. What runs is granted, whatever the budget: a quota stops no pod.
    2. Oldest first, what was granted before stays, as far as it is still asked for and fits: a
       service that came later, or grew, takes nothing away.
    3. Oldest first, who asks for more gets it where it fits. One that does not fit holds up no
       younger, smaller one.

    The sum is at most the budget, or what runs if that is more.
    """
    ordered = sorted(claimants, key=lambda one: (one.created, one.name))
    granted = {one.name: one.running_bytes for one in ordered}
    passes: tuple[Callable[[Claimant], int], ...] = (
        lambda one: min(one.granted_bytes, one.claimed_bytes),
        lambda one: one.claimed_bytes,
    )
    used_bytes = sum(granted.values())
    for wish in passes:
        for one in ordered:
            more = max(0, wish(one) - granted[one.name])
            if used_bytes + more <= budget_bytes:
                granted[one.name] += more
                used_bytes += more
    return granted
