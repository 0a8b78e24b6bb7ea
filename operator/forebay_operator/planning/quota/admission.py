"""What a service may do under its namespace's VRAMQuotas: start, roll out, and grow how far.

The ledger in the quotas' status decides (`ledger`); a service that it does not grant its
claim keeps what it has.
"""

from dataclasses import dataclass
from typing import Literal

from forebay_budget.quantity import format_bytes, to_exact_quantity
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.rollout.revision import Revision
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.quota_entries import (
    Entry,
    budget_of,
    find_smallest,
    read_entries,
    running_replicas,
)
from forebay_operator.service import Service

EXCEEDED = "VRAMQuotaExceeded"
PENDING = "VRAMQuotaPending"
MOST_NAMED = 5


@dataclass(frozen=True)
class Claim:
    """What a service counts for."""

    per_replica_bytes: int
    most_replicas: int

    @property
    def num_bytes(self) -> int:
        """At its most replicas."""
        return self.per_replica_bytes * self.most_replicas

    def to_status(self) -> Manifest:
        """What `status.vram` says of it."""
        return {
            "perReplica": to_exact_quantity(self.per_replica_bytes),
            "mostReplicas": self.most_replicas,
            "total": to_exact_quantity(self.num_bytes),
        }


@dataclass(frozen=True)
class Admission:
    """The revision that may run, and how many replicas of it."""

    revision: Revision | None
    claim: Claim | None = None
    """None on a CPU, and while nobody knows what a replica takes."""
    limit: int | None = None
    """The most replicas; None: as many as are wanted."""
    verdict: Literal["Granted", "Refused", "Pending"] | None = None
    """None where no quota counts the service."""
    message: str = ""

    @property
    def cause(self) -> Cause | None:
        return Cause(EXCEEDED, self.message) if self.verdict == "Refused" else None


def admit(situation: Situation, wished: Revision | None, present: Revision | None) -> Admission:
    """Look the service up in its namespace's ledger.

    wished is what shall run, present what the Deployment is set to.
    """
    if wished is None or not wished.vram_bytes:
        return Admission(wished)
    claim = Claim(wished.vram_bytes, most_replicas(situation.service))
    quotas = situation.observed.quotas
    if not quotas:
        return Admission(wished, claim)
    entries = [_entry_of(situation.service, read_entries(quota)) for quota in quotas]
    granted = min(one.granted_bytes if one else _held_bytes(situation, present) for one in entries)
    is_entered = all(one is not None for one in entries)
    if is_entered and granted >= claim.num_bytes:
        return Admission(wished, claim, None, "Granted", _describe(claim, situation))
    revision, limit = _hold_back(situation, wished, present, granted)
    if not all(one is not None and one.claim_bytes == claim.num_bytes for one in entries):
        message = f"VRAMQuota {_name(situation)} has not counted this claim yet."
        return Admission(revision, claim, limit, "Pending", message)
    message = _explain(situation, claim, granted)
    return Admission(revision, claim, limit, "Refused", message)


def most_replicas(service: Service) -> int:
    """The most that the spec allows at any time of day."""
    if service.scaling is None:
        return service.replicas
    bounds = [one.max_replicas for one in service.scaling.schedules if one.max_replicas is not None]
    return max(service.scaling.max_replicas, *bounds) if bounds else service.scaling.max_replicas


def _hold_back(
    situation: Situation, wished: Revision, present: Revision | None, granted_bytes: int
) -> tuple[Revision | None, int | None]:
    """A changed template rolls out where as many replicas as run now are granted; else the present
    one stays. What runs is never cut, also where the ledger has not seen it yet."""
    running = _running_replicas(situation)
    limit = granted_bytes // wished.vram_bytes
    if present is not None and present.template_hash == wished.template_hash:
        return wished, max(limit, running)
    if limit >= max(1, running):
        return wished, limit
    if present is None or not present.vram_bytes:
        return present, None
    return present, max(granted_bytes // present.vram_bytes, running)


def _held_bytes(situation: Situation, present: Revision | None) -> int:
    """What runs before a quota has entered the service: it was here first."""
    if present is None:
        return 0
    return _running_replicas(situation) * present.vram_bytes


def _running_replicas(situation: Situation) -> int:
    return running_replicas(situation.observed.service, situation.observed.deployment)


def _entry_of(service: Service, entries: tuple[Entry, ...]) -> Entry | None:
    return next((one for one in entries if one.uid == service.uid), None)


def _name(situation: Situation) -> str:
    name: str = find_smallest(situation.observed.quotas)["metadata"]["name"]
    return name


def _describe(claim: Claim, situation: Situation) -> str:
    return f"{_count(claim)} are granted by VRAMQuota {_name(situation)}."


def _count(claim: Claim) -> str:
    replicas = "replica" if claim.most_replicas == 1 else "replicas"
    each = format_bytes(claim.per_replica_bytes)
    return f"{format_bytes(claim.num_bytes)} (at most {claim.most_replicas} {replicas} of {each})"


def _explain(situation: Situation, claim: Claim, granted_bytes: int) -> str:
    """Who holds what, and every knob."""
    quota = find_smallest(situation.observed.quotas)
    service = situation.service
    others = [one for one in read_entries(quota) if one.uid != service.uid]
    needed_bytes = sum(one.granted_bytes for one in others) + claim.num_bytes
    needed = to_exact_quantity(needed_bytes)
    knob = "spec.replicas" if service.scaling is None else "spec.scaling.maxReplicas"
    has = f" It keeps the {format_bytes(granted_bytes)} that it holds." if granted_bytes else ""
    return (
        f"{_count(claim)} do not fit into VRAMQuota {quota['metadata']['name']} of namespace "
        f"{service.namespace}, which has {_tell_budget(budget_of(quota), needed_bytes)}: "
        f"{_tell_holders(others)}; raise the quota's spec.budget to {needed}, lower {knob} or "
        f"spec.vram.budget here, or have others hold less.{has}"
    )


def _tell_budget(budget_bytes: int, needed_bytes: int) -> str:
    """What is too little by so little that both look the same says by how much."""
    budget = format_bytes(budget_bytes)
    if budget != format_bytes(needed_bytes):
        return budget
    return f"{budget} ({format_bytes(needed_bytes - budget_bytes)} too little)"


def _tell_holders(others: list[Entry]) -> str:
    holders = sorted(
        (one for one in others if one.granted_bytes), key=lambda one: (-one.granted_bytes, one.name)
    )
    if not holders:
        return "no other service holds any"
    named = [f"{one.name} holds {format_bytes(one.granted_bytes)}" for one in holders[:MOST_NAMED]]
    rest = holders[MOST_NAMED:]
    if rest:
        rest_bytes = sum(one.granted_bytes for one in rest)
        named.append(f"{len(rest)} more hold {format_bytes(rest_bytes)}")
    return ", ".join(named)
