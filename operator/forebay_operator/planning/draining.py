"""Which pods leave: a hint before the replicas shrink, and a list of those that drain."""

from forebay_operator.observed import Object, ScalingMemory
from forebay_operator.planning.live_numbers import may_refresh
from forebay_operator.planning.metadata import DELETION_COST
from forebay_operator.planning.pods import (
    is_finished,
    is_leaving,
    is_ready,
    load_of,
    pod_name,
    pod_uid,
)
from forebay_operator.planning.situation import Manifest, Situation

_FULL = 1_000_000
"""What a pod that does not answer is taken to hold: nobody knows, so it leaves last."""


def choose_deletion_costs(situation: Situation, num_replicas: int) -> tuple[tuple[str, int], ...]:
    """Rank the ready pods by what they hold, where the Deployment is about to shrink.

    Only then, and only what differs: each cost is a write to a pod.
    """
    deployment = situation.observed.deployment
    if deployment is None or deployment["spec"].get("replicas", 1) <= num_replicas:
        return ()
    ready = [pod for pod in situation.observed.pods if is_ready(pod)]
    ranked = sorted(ready, key=lambda pod: (_held_requests(situation, pod), pod_uid(pod)))
    costs = {pod_name(pod): cost for cost, pod in enumerate(ranked)}
    return tuple(
        (pod_name(pod), costs[pod_name(pod)])
        for pod in ready
        if _current_cost(pod) != str(costs[pod_name(pod)])
    )


def list_draining(situation: Situation, memory: ScalingMemory) -> list[Manifest]:
    """`status.draining`: every pod with a deletion timestamp that has not ended yet."""
    previous = {entry["pod"]: entry for entry in situation.previous.get("draining") or ()}
    leaving = [pod for pod in situation.observed.pods if is_leaving(pod) and not is_finished(pod)]
    is_fresh = may_refresh(memory, situation.now)
    return [
        _describe(situation, pod)
        if is_fresh or pod_name(pod) not in previous
        else dict(previous[pod_name(pod)])
        for pod in leaving
    ]


def _describe(situation: Situation, pod: Object) -> Manifest:
    # Kubernetes writes the end of the grace period, not its begin, into the deletion timestamp.
    entry: Manifest = {"pod": pod_name(pod), "deadline": pod["metadata"]["deletionTimestamp"]}
    load = load_of(pod, situation.observed.loads)
    if load is not None:
        entry["inFlight"] = load.num_running + load.num_waiting
    return entry


def _held_requests(situation: Situation, pod: Object) -> int:
    load = load_of(pod, situation.observed.loads)
    return _FULL if load is None else load.num_running + load.num_waiting


def _current_cost(pod: Object) -> str:
    cost: str = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "")
    return cost
