"""Which pods leave: a hint before the replicas shrink, and a list of those that drain."""

from forebay_operator.observed import Object
from forebay_operator.planning.pods import (
    is_finished,
    is_leaving,
    is_ready,
    load_of,
    pod_name,
    uid_of,
)
from forebay_operator.planning.situation import Manifest, Situation


def choose_deletion_costs(situation: Situation, num_replicas: int) -> tuple[tuple[str, int], ...]:
    """Rank the ready pods by what they hold, where the Deployment is about to shrink.

    Only then: each cost is a write to a pod.
    """
    deployment = situation.observed.deployment
    if deployment is None or deployment["spec"].get("replicas", 1) <= num_replicas:
        return ()
    ready = [pod for pod in situation.observed.pods if is_ready(pod)]
    ranked = sorted(ready, key=lambda pod: _rank(situation, pod))
    return tuple((pod_name(pod), cost) for cost, pod in enumerate(ranked))


def list_draining(situation: Situation) -> list[Manifest]:
    """`status.draining`: every pod with a deletion timestamp that has not ended yet."""
    leaving = [pod for pod in situation.observed.pods if is_leaving(pod) and not is_finished(pod)]
    # A number that was told stands until live numbers may change; one that was missing is told.
    told = {
        entry["pod"]: entry
        for entry in situation.previous.get("draining") or ()
        if "inFlight" in entry and not situation.may_refresh
    }
    return [dict(told.get(pod_name(pod)) or _describe(situation, pod)) for pod in leaving]


def _describe(situation: Situation, pod: Object) -> Manifest:
    # Kubernetes writes the end of the grace period, not its begin, into the deletion timestamp.
    entry: Manifest = {"pod": pod_name(pod), "deadline": pod["metadata"]["deletionTimestamp"]}
    held = _held_requests(situation, pod)
    return entry if held is None else entry | {"inFlight": held}


def _held_requests(situation: Situation, pod: Object) -> int | None:
    """None where it did not answer."""
    load = load_of(pod, situation.observed.loads)
    return None if load is None else load.num_running + load.num_waiting


def _rank(situation: Situation, pod: Object) -> tuple[bool, int, str]:
    """Nobody knows what a pod that does not answer holds, so it leaves last."""
    held = _held_requests(situation, pod)
    return held is None, held or 0, uid_of(pod)
