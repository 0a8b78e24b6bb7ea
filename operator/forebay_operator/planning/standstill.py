"""Nothing can be decided: say so, leave what runs alone.

The spec passed the schema and still cannot be understood, or the operator met an error of its own.
"""

from datetime import datetime

from forebay_operator.observed import Object, Observed
from forebay_operator.planned import Note, Plan
from forebay_operator.planning.condition import Condition, Status, stamp_condition
from forebay_operator.planning.situation import Manifest, find_condition

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
    service: Object, is_ready: Status, reason: str, message: str, now: datetime
) -> Manifest:
    status = dict(service.get("status") or {})
    generation = service["metadata"].get("generation", 1)
    previous = status.get("conditions") or []
    kept = [
        dict(entry)
        for entry in previous
        if entry["type"] not in ("Ready", "Reconciling", "Stalled")
    ]
    told = (
        Condition("Ready", is_ready, reason, message),
        Condition("Stalled", "True", reason, message),
    )
    conditions = [*kept, *(stamp_condition(one, service, now) for one in told)]
    return status | {"observedGeneration": generation, "conditions": conditions}
