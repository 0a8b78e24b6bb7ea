"""How long a status may wait to be written: what only counts pods is told with what comes next.

A start is told in three writes: that the model is looked at, that its pods start, that they serve.
"""

from forebay_operator.observed import Object
from forebay_operator.planning.situation import Manifest, find_condition

CREATION_SECONDS = 2.0
"""How long Kubernetes may take to create the first pods before their absence is told."""
COUNTING_SECONDS = 5.0
STARTING_SECONDS = 30.0
"""The same while nothing serves: no autoscaler looks, and readiness is what everybody waits for."""
_COUNTS = frozenset({"conditions", "replicas", "readyReplicas"})


def patience_seconds(before: Object, after: Object) -> float:
    """How long `after` may wait to take the place of `before`; 0 for what must be told at once."""
    if not before.get("conditions"):
        return 0.0
    was, now = (_reason(one, "Ready") for one in (before, after))
    if _essence(before) == _essence(after):
        return STARTING_SECONDS if now == "Starting" else COUNTING_SECONDS
    created = _reason(after, "PodsCreated")
    is_beginning = (was, now) == ("Inspecting", "Starting")
    return CREATION_SECONDS if is_beginning and created == "Creating" else 0.0


def _reason(status: Object, condition_type: str) -> str:
    return str(find_condition(status.get("conditions"), condition_type).get("reason", ""))


def _essence(status: Object) -> Manifest:
    """All but numbers of pods, the sentences that hold them, and whether that many exist."""
    conditions = {
        one["type"]: (one["status"], one["reason"])
        for one in status.get("conditions") or ()
        if one["type"] != "PodsCreated" or one["status"] == "False"
    }
    rest = {name: part for name, part in status.items() if name not in _COUNTS}
    return rest | {"conditions": conditions}
