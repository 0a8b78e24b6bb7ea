"""What a VRAMQuota's status says of each service: the ledger by which services are admitted.

`planning.quota.ledger` writes it, and nobody else does, so that two services that ask at once
cannot both be granted the same memory.
"""

from dataclasses import dataclass

from forebay_budget.quantity import parse_quantity, to_exact_quantity
from forebay_operator.observed import Object


@dataclass(frozen=True)
class Entry:
    """One service in the ledger."""

    name: str
    uid: str
    claim_bytes: int
    granted_bytes: int
    per_replica_bytes: int = 0
    most_replicas: int = 0

    @property
    def is_admitted(self) -> bool:
        """Whether all that it asks for is granted."""
        return self.granted_bytes >= self.claim_bytes

    def to_status(self) -> dict[str, object]:
        """As `status.services` holds it."""
        return {
            "name": self.name,
            "uid": self.uid,
            "perReplica": to_exact_quantity(self.per_replica_bytes),
            "mostReplicas": self.most_replicas,
            "claim": to_exact_quantity(self.claim_bytes),
            "granted": to_exact_quantity(self.granted_bytes),
            "admitted": self.is_admitted,
        }


def read_entries(quota: Object) -> tuple[Entry, ...]:
    """The ledger of a VRAMQuota, oldest service first."""
    found = (quota.get("status") or {}).get("services") or ()
    return tuple(
        Entry(
            one["name"],
            one["uid"],
            parse_quantity(one["claim"]),
            parse_quantity(one["granted"]),
            parse_quantity(one.get("perReplica", "0")),
            one.get("mostReplicas", 0),
        )
        for one in found
    )


def running_replicas(service: Object, deployment: Object | None) -> int:
    """The replicas that a service is set to, without what its Deployment gets beside them.

    A successor of a pod whose node ends, or a number that somebody else wrote, is no growth.
    """
    if deployment is None:
        return 0
    told: int = deployment["spec"].get("replicas", 1)
    vram = (service.get("status") or {}).get("vram") or {}
    decided: int = vram.get("replicas", told)
    return min(told, decided)


def budget_of(quota: Object) -> int:
    """What a VRAMQuota grants, in bytes."""
    return parse_quantity(str(quota["spec"]["budget"]))


def find_smallest(quotas: tuple[Object, ...]) -> Object:
    """The quota that counts where a namespace has several; ValueError where it has none."""
    return min(quotas, key=lambda quota: (budget_of(quota), quota["metadata"]["name"]))


def concerned(before: Object, after: Object) -> set[str]:
    """The services whose decision a changed ledger may change.

    Those whose own entry changed; and those that wait, who are told what the others hold.
    """
    known, now = read_entries(before), read_entries(after)
    changed = {one.name for one in {*known} ^ {*now}}
    return changed | {one.name for one in now if changed and not one.is_admitted}
