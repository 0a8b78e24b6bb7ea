"""One condition of a status, as `conditions` and the quotas' ledger write it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.situation import Manifest, find_condition
from forebay_operator.planning.timestamps import to_time

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class Condition:
    """What one condition says now."""

    type: str
    status: Status
    reason: str
    message: str


def failed(condition_type: str, cause: Cause) -> Condition:
    """A condition that is False for a cause."""
    return Condition(condition_type, "False", cause.reason, cause.message)


def stamp_condition(condition: Condition, service: Object, now: datetime) -> Manifest:
    """Give a condition its generation, and the time of its last flip."""
    conditions = (service.get("status") or {}).get("conditions")
    previous = find_condition(conditions, condition.type)
    has_flipped = previous.get("status") != condition.status
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": service["metadata"].get("generation", 1),
        "lastTransitionTime": to_time(now) if has_flipped else previous["lastTransitionTime"],
    }
