"""Why a pod leaves, as far as Kubernetes says so.

Whoever disrupts a pod from outside writes the condition DisruptionTarget on it; a scale-down, a
rollout and a deletion by hand write nothing.
"""

from dataclasses import dataclass

from forebay_operator.observed import Object
from forebay_operator.planning.pods import pod_condition, template_hash
from forebay_operator.planning.scaling.successors import list_endings, node_of
from forebay_operator.planning.situation import Situation


@dataclass(frozen=True)
class Departure:
    """Why, as one word for the status and a clause for sentences."""

    reason: str
    clause: str
    is_disruption: bool = True
    """Nobody who owns the service wanted it."""


_DISRUPTIONS = {
    "EvictionByEvictionAPI": Departure("Evicted", "it was evicted"),
    "PreemptionByScheduler": Departure("Preempted", "a pod of higher priority took its place"),
    "DeletionByTaintManager": Departure("NodeTainted", "its node got a taint that it cannot bear"),
    "TerminationByKubelet": Departure("NodeShutdown", "its node shuts down or ran out of room"),
    "DeletionByPodGC": Departure("NodeGone", "its node is gone"),
}
_ENDING = Departure("NodeEnding", "its node is about to go")
_REPLACED = Departure("RolledOut", "a newer pod takes its place", is_disruption=False)
_REMOVED = Departure("Removed", "it was scaled down or deleted", is_disruption=False)


def explain_departure(situation: Situation, pod: Object, wanted_hash: str) -> Departure:
    """Why a pod leaves; a disruption nobody knows yet counts as an eviction."""
    target = pod_condition(pod, "DisruptionTarget")
    if target.get("status") == "True":
        known = _DISRUPTIONS.get(target.get("reason", ""))
        return known or _DISRUPTIONS["EvictionByEvictionAPI"]
    if node_of(pod) in list_endings(situation):
        return _ENDING
    return _REMOVED if template_hash(pod) == wanted_hash else _REPLACED
