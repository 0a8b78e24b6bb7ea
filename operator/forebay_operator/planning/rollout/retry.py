"""A pod that backs off is replaced by a fresh one once there is evidence that its cause is mended.

The kubelet tries a container again after up to five minutes; a new pod tries at once. But a pod may
hold a place on a scarce GPU and a half-downloaded model, and one that seems to back off from its
image may be pulling it just now: so nothing is deleted on suspicion, nor by the clock. Evidence is
that another pod of the same template came to serve after this one failed, or that a person says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from forebay_operator.kinds import POD
from forebay_operator.objects import uid_of
from forebay_operator.observed import Object
from forebay_operator.planned import Note, ObjectRef
from forebay_operator.planning.causes.images import IMAGE_REASONS
from forebay_operator.planning.causes.patient import Patient
from forebay_operator.planning.pods import (
    RUNTIME_CONTAINER,
    created_at,
    is_finished,
    is_leaving,
    is_ready,
    pod_condition,
    pod_name,
    template_hash,
)
from forebay_operator.planning.situation import Situation
from forebay_operator.planning.timestamps import parse_time

TRY_AGAIN = "forebay.dev/try-again-at"
"""On the InferenceService: the time at which a person mended what its pods fail for."""
CRASHES = "CrashLoopBackOff"
FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
_BIRTH_SECONDS = 5.0
"""Within which a pod's first status is written: unready since then means that it never served."""


@dataclass(frozen=True)
class Retry:
    """The pod to delete, if any, and what to say of it."""

    deletions: tuple[ObjectRef, ...] = ()
    notes: tuple[Note, ...] = ()
    look_again_seconds: float | None = None


def choose_retry(situation: Situation, wanted_hash: str) -> Retry:
    """The oldest pod for which there is evidence; none while another one is on its way."""
    pods = [
        pod
        for pod in situation.observed.pods
        if template_hash(pod) == wanted_hash and not is_finished(pod)
    ]
    stuck = [pod for pod in pods if _backs_off(situation, pod)]
    if len(stuck) < sum(not is_ready(pod) for pod in pods):
        return Retry()
    reasons = ((pod, _find_evidence(situation, pod, pods)) for pod in stuck)
    pod, reason = next(((pod, reason) for pod, reason in reasons if reason), (None, ""))
    if pod is None:
        return Retry()
    wait = _seconds_to_wait(situation, pod)
    if wait > 0:
        return Retry(look_again_seconds=wait)
    version = str(pod["metadata"].get("resourceVersion", ""))
    one = ObjectRef(POD.api_version, POD.name, pod_name(pod), uid_of(pod), version)
    message = f"Pod {pod_name(pod)} backed off and is replaced, so that it is tried now: {reason}."
    return Retry((one,), (Note("Normal", "PodReplaced", message),))


def _backs_off(situation: Situation, pod: Object) -> bool:
    """It waits for its next try and never served anybody."""
    reason = Patient(pod, RUNTIME_CONTAINER, situation).waiting.get("reason")
    if is_leaving(pod) or (reason != CRASHES and reason not in IMAGE_REASONS):
        return False
    unready_at = pod_condition(pod, "Ready").get("lastTransitionTime")
    began_at = (pod.get("status") or {}).get("startTime")
    if not unready_at or not began_at:
        return False
    return (parse_time(unready_at) - parse_time(began_at)).total_seconds() <= _BIRTH_SECONDS


def _find_evidence(situation: Situation, pod: Object, pods: Iterable[Object]) -> str:
    """Why its next try may end better than its last one; empty where nothing tells."""
    said_at = _read_annotation(situation)
    if said_at is not None and created_at(pod) < said_at <= situation.now:
        return f"{TRY_AGAIN} says that its cause is mended"
    patient = Patient(pod, RUNTIME_CONTAINER, situation)
    failed_at = patient.ended.get("finishedAt")
    if patient.waiting.get("reason") != CRASHES or not failed_at:
        return ""
    for other in pods:
        served_at = pod_condition(other, "Ready").get("lastTransitionTime")
        if is_ready(other) and served_at and parse_time(served_at) > parse_time(failed_at):
            return f"pod {pod_name(other)} of the same template began to serve since"
    return ""


def _read_annotation(situation: Situation) -> datetime | None:
    annotations = situation.observed.service["metadata"].get("annotations") or {}
    try:
        return parse_time(annotations[TRY_AGAIN])
    except (KeyError, ValueError):
        return None


def _seconds_to_wait(situation: Situation, pod: Object) -> float:
    """As long as its template had been failing when it was made: the time between tries doubles."""
    made_at = [
        created_at(one)
        for one in situation.observed.replica_sets
        if template_hash(one) == template_hash(pod)
    ]
    failing = (created_at(pod) - min(made_at, default=created_at(pod))).total_seconds()
    delay = min(max(failing, FIRST_SECONDS), LONGEST_SECONDS)
    return max(0.0, delay - (situation.now - created_at(pod)).total_seconds())
