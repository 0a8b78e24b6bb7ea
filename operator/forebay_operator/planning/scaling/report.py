"""`status.scaling`: the last change of replicas with its numbers, until the next one.

A state without a change (the bound holds the replicas back) is told too, but not at once: who looks
for why there are two replicas shall find it.
"""

from dataclasses import dataclass

from forebay_operator.planning.scaling.inputs import ScalingInputs, describe_inputs
from forebay_operator.planning.scaling.schedules import Timetable
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.timestamps import seconds_since, to_time

CHANGE_STANDS_SECONDS = 60.0
_OF_DECISION = ("desiredReplicas", "reason", "message", "lastScaleTime")


@dataclass(frozen=True)
class Decision:
    """How many replicas and why; the reason is empty where nothing changes or holds back."""

    num_replicas: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Report:
    """`status.scaling`, and when it would say something newer."""

    status: Manifest
    look_again_seconds: float | None = None


def report_scaling(
    situation: Situation, decision: Decision, timetable: Timetable, inputs: ScalingInputs
) -> Report:
    """The whole of `status.scaling` after a decision."""
    previous = dict(situation.previous.get("scaling") or {})
    status = _report_decision(situation, decision, previous) | timetable.to_status()
    now, told = describe_inputs(inputs), previous.get("inputs")
    if told is None or status.get("lastScaleTime") != previous.get("lastScaleTime"):
        return Report(status | {"inputs": now})
    if situation.may_refresh or now == told:
        return Report(status | {"inputs": now})
    return Report(status | {"inputs": told}, situation.seconds_to_refresh)


def _report_decision(situation: Situation, decision: Decision, previous: Manifest) -> Manifest:
    told = {name: previous[name] for name in _OF_DECISION if name in previous}
    if told.get("desiredReplicas") == decision.num_replicas:
        return told | _held_back(situation, decision, told)
    report: Manifest = {"desiredReplicas": decision.num_replicas}
    if decision.reason:
        report |= {"reason": decision.reason, "message": decision.message}
        return report | {"lastScaleTime": to_time(situation.now)}
    return report | _calm(decision)


def _held_back(situation: Situation, decision: Decision, previous: Manifest) -> Manifest:
    changed_at = previous.get("lastScaleTime")
    if changed_at and seconds_since(changed_at, situation.now) < CHANGE_STANDS_SECONDS:
        return {}
    was_held_back = previous.get("reason") == "AtMaximum"
    if decision.reason == "AtMaximum":
        is_news = not was_held_back or situation.may_refresh
        return {"reason": decision.reason, "message": decision.message} if is_news else {}
    return _calm(decision) if was_held_back else {}


def _calm(decision: Decision) -> Manifest:
    replicas = (
        "1 replica is" if decision.num_replicas == 1 else f"{decision.num_replicas} replicas are"
    )
    message = f"{replicas} enough for what waits."
    return {"reason": "WithinTarget", "message": message}
