"""Nothing can be decided: say so, leave what runs alone.

The spec passed the schema and still cannot be understood, or the operator met an error of its own.
"""

from datetime import datetime

from forebay_operator.observed import Object, Observed
from forebay_operator.planned import Note, Plan
from forebay_operator.planning.situation import Manifest, find_condition
from forebay_operator.planning.timestamps import to_time

SPEC_INVALID = "SpecInvalid"
INTERNAL_ERROR = "InternalError"


def plan_invalid_spec(observed: Observed, message: str, now: datetime) -> Plan:
    """Ready and Stalled tell the sentence; everything else stays as it was."""
    previous = (observed.service.get("status") or {}).get("conditions") or []
    is_news = find_condition(previous, "Ready").get("reason") != SPEC_INVALID
    return Plan(
        status=_stand_still(observed.service, "False", SPEC_INVALID, message, now),
        notes=(Note("Warning", SPEC_INVALID, message),) if is_news else (),
        memory=observed.memory,
    )


def tell_internal_error(service: Object, error: Exception, now: datetime) -> Manifest:
    """The status after an error of the operator's own: whether it is ready, nobody knows."""
    words = f"{type(error).__name__}: {error}"[:300]
    message = (
        f"The operator failed while it worked on this InferenceService ({words}) and left what "
        "runs alone; it tries again, and its log tells more. Please report it."
    )
    return _stand_still(service, "Unknown", INTERNAL_ERROR, message, now)


def _stand_still(
    service: Object, is_ready: str, reason: str, message: str, now: datetime
) -> Manifest:
    status = dict(service.get("status") or {})
    generation = service["metadata"].get("generation", 1)
    previous = status.get("conditions") or []
    told = {"reason": reason, "message": message, "observedGeneration": generation}
    kept = [
        dict(entry)
        for entry in previous
        if entry["type"] not in ("Ready", "Reconciling", "Stalled")
    ]
    states = (("Ready", is_ready), ("Stalled", "True"))
    conditions = [*kept, *(told | _turn(previous, kind, state, now) for kind, state in states)]
    return status | {"observedGeneration": generation, "conditions": conditions}


def _turn(previous: list[Manifest], condition_type: str, state: str, now: datetime) -> Manifest:
    before = find_condition(previous, condition_type)
    since = before["lastTransitionTime"] if before.get("status") == state else to_time(now)
    return {"type": condition_type, "status": state, "lastTransitionTime": since}
