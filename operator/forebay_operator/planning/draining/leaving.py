"""Which pods leave: a hint before the replicas shrink, and a list of those that drain."""

from collections.abc import Collection

from forebay_operator.objects import uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.draining.departure import explain_departure
from forebay_operator.planning.pods import is_finished, is_leaving, is_ready, load_of, pod_name
from forebay_operator.planning.scaling.successors import list_endings, node_of
from forebay_operator.planning.situation import Manifest, Situation


def choose_deletion_costs(situation: Situation, num_replicas: int) -> tuple[tuple[str, int], ...]:
    """Rank the ready pods by what they hold, where the Deployment is about to shrink.

    Only then: each cost is a write to a pod.
    """
    deployment = situation.observed.deployment
    if deployment is None or deployment["spec"].get("replicas", 1) <= num_replicas:
        return ()
    ready = [pod for pod in situation.observed.pods if is_ready(pod)]
    endings = list_endings(situation)
    ranked = sorted(ready, key=lambda pod: _rank(situation, endings, pod))
    return tuple((pod_name(pod), cost) for cost, pod in enumerate(ranked))


def list_draining(situation: Situation, wanted_hash: str) -> list[Manifest]:
    """`status.draining`: every pod with a deletion timestamp that has not ended yet."""
    told = {entry["pod"]: entry for entry in situation.previous.get("draining") or ()}
    return [
        _describe(situation, pod, told.get(pod_name(pod), {}), wanted_hash)
        for pod in situation.observed.pods
        if is_leaving(pod) and not is_finished(pod)
    ]


def seconds_to_retell(situation: Situation) -> float | None:
    """When a number that has changed since it was told may be told; None where none has."""
    told = {entry["pod"]: entry.get("inFlight") for entry in situation.previous.get("draining", ())}
    held = {pod_name(pod): _held_requests(situation, pod) for pod in situation.observed.pods}
    is_stale = any(held.get(name) not in (None, number) for name, number in told.items())
    return situation.seconds_to_refresh if is_stale and not situation.may_refresh else None


def _describe(situation: Situation, pod: Object, told: Manifest, wanted_hash: str) -> Manifest:
    """A number that was told stands until live numbers may change; one that was missing is told."""
    held = _held_requests(situation, pod)
    if "inFlight" in told and not situation.may_refresh:
        held = told["inFlight"]
    # Kubernetes writes the end of the grace period, not its begin, into the deletion timestamp.
    entry = {
        "pod": pod_name(pod),
        "reason": explain_departure(situation, pod, wanted_hash).reason,
        "deadline": pod["metadata"]["deletionTimestamp"],
    }
    return entry if held is None else entry | {"inFlight": held}


def _held_requests(situation: Situation, pod: Object) -> int | None:
    """None where it did not answer."""
    load = load_of(pod, situation.observed.loads)
    return None if load is None else load.num_running + load.num_waiting


def _rank(
    situation: Situation, endings: Collection[str], pod: Object
) -> tuple[bool, bool, int, str]:
    """First those that go anyway; nobody knows what a silent pod holds, so it leaves last."""
    held = _held_requests(situation, pod)
    return node_of(pod) not in endings, held is None, held or 0, uid_of(pod)
