"""Somebody else sets the Deployment's replicas: they are put back, and the right object is named.

A person's change is put back at once. An autoscaler would set it again seconds later, and each turn
starts and drains pods: after the first turn its number stands for minutes before the next.
"""

from dataclasses import dataclass, replace

from forebay_operator.kinds import INFERENCE_SERVICE
from forebay_operator.observed import Contest, Object
from forebay_operator.planned import Note
from forebay_operator.planning.situation import Situation
from forebay_operator.service import Service

CONDITION = "AutoscalerMisdirected"
HOLD_SECONDS = 300.0
"""How long an autoscaler's number stands before it is put back again."""
TOLD_SECONDS = 900.0
"""How long the condition outlives the autoscaler's last word."""
_AUTOSCALERS = ("kube-controller-manager", "keda", "autoscaler")


@dataclass(frozen=True)
class Ruling:
    """The replicas that the Deployment gets, and what is remembered and told of who differs."""

    num_replicas: int
    contest: Contest | None = None
    notes: tuple[Note, ...] = ()
    look_again_seconds: float | None = None


def rule_contest(situation: Situation, num_replicas: int) -> Ruling:
    """Put back what somebody else set, or wait with it."""
    contest = _remembered(situation)
    deployment = situation.observed.deployment
    rival = None if deployment is None else _find_rival(deployment, num_replicas)
    if deployment is None or rival is None:
        if contest is None:
            return Ruling(num_replicas)
        age = (situation.now - contest.seen_at).total_seconds()
        is_over = age >= TOLD_SECONDS
        return Ruling(
            num_replicas,
            None if is_over else contest,
            look_again_seconds=None if is_over else TOLD_SECONDS - age,
        )
    if not any(name in rival for name in _AUTOSCALERS):
        return Ruling(num_replicas, contest, (_tell_person(situation.service, rival),))
    return _rule_autoscaler(situation, deployment, num_replicas, contest)


def describe_contest(service: Service) -> str:
    """What to do about an autoscaler that scales the wrong object."""
    way = f"point its scaleTargetRef at {_right_target(service)}"
    if service.scaling is not None:
        way = f"remove it, or remove spec.scaling and {way}"
    return (
        f"An autoscaler sets the replicas of Deployment {service.name}, which follow this "
        f"InferenceService and are put back every few minutes; {way}."
    )


def _rule_autoscaler(
    situation: Situation, deployment: Object, num_replicas: int, contest: Contest | None
) -> Ruling:
    now = situation.now
    if contest is not None:
        rest = HOLD_SECONDS - (now - contest.put_back_at).total_seconds()
        if rest > 0:
            num_held = deployment["spec"].get("replicas", 1)
            return Ruling(num_held, replace(contest, seen_at=now), look_again_seconds=rest)
    note = Note("Warning", CONDITION, describe_contest(situation.service))
    return Ruling(num_replicas, Contest(now, now), (note,), TOLD_SECONDS)


def _remembered(situation: Situation) -> Contest | None:
    """After a restart of the operator the condition alone remembers."""
    memory = situation.memory
    if memory.contest is None and memory.is_fresh and situation.previous_condition(CONDITION):
        return Contest(memory.started_at, memory.started_at)
    return memory.contest


def _find_rival(deployment: Object, num_replicas: int) -> str | None:
    """Who else owns the Deployment's replicas, where they are not what is wanted.

    To put them back takes the field away from its owner, so whoever owns it wrote it since.
    """
    if deployment["spec"].get("replicas", 1) == num_replicas:
        return None
    owners = deployment["metadata"].get("managedFields") or ()
    return next((one["manager"] for one in owners), None)


def _tell_person(service: Service, manager: str) -> Note:
    return Note(
        "Warning",
        "ReplicasPutBack",
        f"{manager} set the replicas of Deployment {service.name}, which follow this "
        f"InferenceService and were put back; scale {_right_target(service)} instead"
        + (" by its spec.scaling." if service.scaling is not None else "."),
    )


def _right_target(service: Service) -> str:
    kind = INFERENCE_SERVICE
    return f"{kind.name} {service.name} of {kind.api_version}"
