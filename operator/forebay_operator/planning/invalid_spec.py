"""A spec that passed the schema but cannot be understood: say so, leave what runs alone."""

from datetime import datetime

from forebay_operator.observed import Observed
from forebay_operator.planned import Note, Plan
from forebay_operator.planning.situation import Manifest, find_condition
from forebay_operator.planning.timestamps import to_time

REASON = "SpecInvalid"


def plan_invalid_spec(observed: Observed, message: str, now: datetime) -> Plan:
    """Ready and Stalled tell the sentence; everything else stays as it was."""
    status = dict(observed.service.get("status") or {})
    generation = observed.service["metadata"].get("generation", 1)
    previous = status.get("conditions") or []
    kept = [
        dict(entry)
        for entry in previous
        if entry["type"] not in ("Ready", "Reconciling", "Stalled")
    ]
    told = [
        _tell(previous, "Ready", "False", message, now) | {"observedGeneration": generation},
        _tell(previous, "Stalled", "True", message, now) | {"observedGeneration": generation},
    ]
    is_news = find_condition(previous, "Ready").get("reason") != REASON
    return Plan(
        status=status | {"observedGeneration": generation, "conditions": [*kept, *told]},
        notes=(Note("Warning", REASON, message),) if is_news else (),
        memory=observed.memory,
    )


def _tell(
    previous: list[Manifest], condition_type: str, status: str, message: str, now: datetime
) -> Manifest:
    before = find_condition(previous, condition_type)
    is_same = before.get("status") == status
    return {
        "type": condition_type,
        "status": status,
        "reason": REASON,
        "message": message,
        "lastTransitionTime": before["lastTransitionTime"] if is_same else to_time(now),
    }
