"""The status of a namespace's VRAMQuotas: who asks for what, who is granted it, and who waits."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from forebay_budget.quantity import format_bytes, parse_quantity, to_exact_quantity
from forebay_operator.observed import Object
from forebay_operator.planning.condition import Condition, stamp_condition
from forebay_operator.planning.quota.sharing import Claimant, share_out
from forebay_operator.planning.situation import Manifest
from forebay_operator.quota_entries import (
    Entry,
    budget_of,
    find_smallest,
    read_entries,
    running_replicas,
)

MOST_NAMED = 5


def plan_quotas(
    quotas: tuple[Object, ...],
    services: Iterable[Object],
    deployments: Mapping[str, Object],
    now: datetime,
) -> tuple[Manifest, ...]:
    """The status of each quota of a namespace, in their order; the smallest budget counts.

    services are its InferenceServices, deployments their Deployments by the service's uid.
    """
    budget_bytes = budget_of(find_smallest(quotas))
    entries = _share(budget_bytes, quotas, services, deployments)
    condition = _judge(entries, budget_bytes)
    return tuple(
        {
            "observedGeneration": quota["metadata"].get("generation", 1),
            "budget": to_exact_quantity(budget_bytes),
            "used": to_exact_quantity(sum(one.granted_bytes for one in entries)),
            "services": [one.to_status() for one in entries],
            "conditions": [stamp_condition(condition, quota, now)],
        }
        for quota in quotas
    )


def _share(
    budget_bytes: int,
    quotas: tuple[Object, ...],
    services: Iterable[Object],
    deployments: Mapping[str, Object],
) -> list[Entry]:
    """Granted before is what any of the quotas says: one of them may be new."""
    known = [entry for quota in quotas for entry in read_entries(quota)]
    asking = sorted(((_age(raw), raw) for raw in services), key=lambda pair: pair[0])
    asked: dict[str, tuple[Claimant, Object]] = {}
    for (created, name), raw in asking:
        uid = raw["metadata"]["uid"]
        mine = [entry for entry in known if entry.uid == uid]
        before = max((entry.granted_bytes for entry in mine), default=0)
        status = raw.get("status") or {}
        vram = status.get("vram")
        if vram is None and not (mine and _may_hold(raw, status)):
            continue  # on a CPU, or how much it needs is not known yet
        # A status that somebody wiped is written again; until then it asks for what it has.
        claimed = parse_quantity(vram["total"]) if vram else before
        running = _running_bytes(raw, deployments.get(uid), mine[0] if mine else None)
        asked[name] = (Claimant(created, name, claimed, running, before), raw)
    granted = share_out(budget_bytes, (claimant for claimant, _ in asked.values()))
    return [_enter(claimant, raw, granted[name]) for name, (claimant, raw) in asked.items()]


def _enter(claimant: Claimant, raw: Object, granted_bytes: int) -> Entry:
    vram = (raw.get("status") or {}).get("vram") or {}
    return Entry(
        claimant.name,
        raw["metadata"]["uid"],
        claimant.claimed_bytes,
        granted_bytes,
        parse_quantity(vram.get("perReplica", "0")),
        vram.get("mostReplicas", 0),
    )


def _running_bytes(raw: Object, deployment: Object | None, entry: Entry | None) -> int:
    """Pods that drain are over; a surge pod of a rollout is over soon, and is not counted."""
    status = raw.get("status") or {}
    vram, plan = status.get("vram") or {}, status.get("plan") or {}
    known = to_exact_quantity(entry.per_replica_bytes if entry else 0)
    each = parse_quantity(vram.get("perRunningReplica", plan.get("budget", known)))
    return running_replicas(raw, deployment) * each


def _may_hold(raw: Object, status: Object) -> bool:
    """Whether a service that tells nothing may have pods on GPUs."""
    return not status.get("conditions") or raw["spec"].get("device", "GPU") == "GPU"


def _age(raw: Object) -> tuple[str, str]:
    return raw["metadata"]["creationTimestamp"], raw["metadata"]["name"]


def _judge(entries: Sequence[Entry], budget_bytes: int) -> Condition:
    used_bytes = sum(one.granted_bytes for one in entries)
    held = f"{format_bytes(used_bytes)} of {format_bytes(budget_bytes)}"
    waiting = [one for one in entries if not one.is_admitted]
    if used_bytes > budget_bytes:
        return Condition(
            "WithinBudget",
            "False",
            "BudgetExceeded",
            f"Services run with {held}, from before the budget was set or lowered: nothing was "
            "stopped, and nothing new starts or grows until they hold less; raise spec.budget to "
            f"{to_exact_quantity(used_bytes)}, or have them ask for less.",
        )
    if waiting:
        return Condition(
            "WithinBudget", "False", "ServicesWait", _tell_waiting(waiting, held, used_bytes)
        )
    services = "service asks" if len(entries) == 1 else "services ask"
    extra_bytes = sum(max(0, one.granted_bytes - one.claim_bytes) for one in entries)
    asked = f"{format_bytes(used_bytes - extra_bytes)} of {format_bytes(budget_bytes)}"
    until = f"; {format_bytes(extra_bytes)} more are held until an edit has reached the pods"
    message = (
        f"{len(entries)} {services} for {asked}, and all of it is granted"
        f"{until if extra_bytes else ''}."
    )
    return Condition("WithinBudget", "True", "AllAdmitted", message)


def _tell_waiting(waiting: Sequence[Entry], held: str, used_bytes: int) -> str:
    named = [
        f"{one.name} ({format_bytes(one.claim_bytes - one.granted_bytes)} more)"
        for one in waiting[:MOST_NAMED]
    ]
    others = f" and {len(waiting) - MOST_NAMED} others" if len(waiting) > MOST_NAMED else ""
    missing = sum(one.claim_bytes - one.granted_bytes for one in waiting)
    return (
        f"{held} are held, and {', '.join(named)}{others} do not fit; a spec.budget of "
        f"{to_exact_quantity(used_bytes + missing)} would admit all."
    )
