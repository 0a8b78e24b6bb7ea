"""How far the Deployment has come towards what was asked of it, and what stands in its way."""

from collections.abc import Iterable
from dataclasses import dataclass

from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.causes.diagnosis import diagnose_pod
from forebay_operator.planning.causes.patient import Patient, seconds_until_ailing
from forebay_operator.planning.causes.refusals import explain_refusal
from forebay_operator.planning.pods import (
    RUNTIME_CONTAINER,
    created_at,
    is_finished,
    is_leaving,
    is_ready,
    template_hash,
)
from forebay_operator.planning.rollout.outdated import list_outdated
from forebay_operator.planning.situation import Situation, find_condition
from forebay_operator.planning.timestamps import seconds_since


@dataclass(frozen=True)
class Progress:
    """What the pods have reached."""

    num_wanted: int
    num_existing: int = 0
    num_updated: int = 0
    num_outdated: int = 0
    """Pods that a rollout replaces, until they are gone."""
    num_ready: int = 0
    is_complete: bool = False
    """The Deployment runs the wanted template, and nothing else, with all its pods ready."""
    is_overdue: bool = False
    """Its progress deadline has passed."""
    is_paused: bool = False
    """Somebody paused the Deployment before it came that far."""
    creation_cause: Cause | None = None
    refused_seconds: float = 0.0
    """For how long pods have been refused; 0 where none is."""
    pod_cause: Cause | None = None
    look_again_seconds: float | None = None
    """When a pod that has just become unready has been so for long enough to be called ailing."""


def read_progress(situation: Situation, num_wanted: int, wanted_hash: str) -> Progress:
    """Compare the Deployment, as its controller reports it, with what is wanted."""
    num_ready = sum(is_ready(pod) for pod in situation.observed.pods)
    deployment = situation.observed.deployment
    if deployment is None:
        return Progress(num_wanted, num_ready=num_ready)
    status = deployment.get("status") or {}
    staying = _staying(situation, wanted_hash)
    # The pods' own word counts, too: a Deployment's numbers lag behind a pod that just failed.
    num_serving = sum(map(is_ready, staying))
    is_complete = num_serving >= num_wanted and _is_complete(
        situation, deployment, num_wanted, wanted_hash
    )
    is_judged = not is_complete and _is_judged(situation, deployment, wanted_hash)
    failure = _replica_failure(deployment) if is_judged else {}
    patients = _examine(situation, staying)
    return Progress(
        num_wanted,
        num_existing=status.get("replicas", 0),
        num_updated=sum(not is_finished(pod) for pod in staying),
        num_outdated=sum(not is_finished(pod) for pod in list_outdated(situation, wanted_hash)),
        num_ready=num_ready,
        is_complete=is_complete,
        is_paused=not is_complete and bool(deployment["spec"].get("paused")),
        is_overdue=is_judged and _is_overdue(deployment),
        creation_cause=_creation_cause(situation, failure),
        refused_seconds=_refused_seconds(situation, failure),
        pod_cause=None if is_complete or num_wanted == 0 else _pod_cause(patients),
        look_again_seconds=min(filter(None, map(seconds_until_ailing, patients)), default=None),
    )


def _runs(deployment: Object, wanted_hash: str) -> bool:
    return template_hash(deployment["spec"]["template"]) == wanted_hash


def _is_complete(
    situation: Situation, deployment: Object, num_wanted: int, wanted_hash: str
) -> bool:
    """By its controller's counts; by the pods too, where those counts are of an older spec.

    So what no pod sees, such as another deadline or pace, does not make it less than complete.
    """
    status = deployment.get("status") or {}
    counts = [
        status.get(name, 0)
        for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    ]
    is_asked = deployment["spec"].get("replicas", 1) == num_wanted and _runs(
        deployment, wanted_hash
    )
    if not is_asked or any(count != num_wanted for count in counts):
        return False
    return _is_seen(deployment) or _are_all(situation.observed.pods, num_wanted, wanted_hash)


def _are_all(pods: Iterable[Object], num_wanted: int, wanted_hash: str) -> bool:
    """Whether just the wanted pods exist, and serve."""
    staying = [pod for pod in pods if not is_leaving(pod)]
    serving = [pod for pod in staying if is_ready(pod) and template_hash(pod) == wanted_hash]
    return len(serving) == len(staying) == num_wanted


def _is_seen(deployment: Object) -> bool:
    """Whether its controller speaks of its present spec."""
    seen: int = (deployment.get("status") or {}).get("observedGeneration", 0)
    return seen >= int(deployment["metadata"].get("generation", 1))


def _is_judged(situation: Situation, deployment: Object, wanted_hash: str) -> bool:
    """Whether what its controller complains of is of what the Deployment is to run now.

    What it said of an older spec is being mended by this one. But where this generation failed
    already, only its pace, its replicas or the wish to try again changed since.
    """
    said = situation.previous_condition("Progressing")
    is_of_now = said.get("observedGeneration") == situation.service.generation
    has_failed = is_of_now and said["status"] == "False"
    return _runs(deployment, wanted_hash) and (_is_seen(deployment) or has_failed)


def _is_overdue(deployment: Object) -> bool:
    progressing = find_condition((deployment.get("status") or {}).get("conditions"), "Progressing")
    return progressing.get("reason") == "ProgressDeadlineExceeded"


def _replica_failure(deployment: Object) -> Object:
    """What its ReplicaSets are refused, for as long as they are; empty where nothing is."""
    failure = find_condition((deployment.get("status") or {}).get("conditions"), "ReplicaFailure")
    return failure if failure.get("status") == "True" else {}


def _creation_cause(situation: Situation, failure: Object) -> Cause | None:
    if not failure:
        return None
    return explain_refusal(failure.get("message", ""), situation.service.model.uri)


def _refused_seconds(situation: Situation, failure: Object) -> float:
    if "lastTransitionTime" not in failure:
        return 0.0
    return max(0.001, seconds_since(failure["lastTransitionTime"], situation.now))


def _pod_cause(patients: list[Patient]) -> Cause | None:
    """What ails the oldest ailing pod; what ailed pods of older templates is being mended."""
    found = (diagnose_pod(patient) for patient in patients)
    return next((cause for cause in found if cause is not None), None)


def _examine(situation: Situation, staying: list[Object]) -> list[Patient]:
    """The pods of the wanted template; an evicted one last, for its successor tells more."""
    served_at = max((created_at(pod) for pod in staying if is_ready(pod)), default=None)
    # What ended before a pod that serves was made has been made good, but its object lingers.
    told = [
        pod
        for pod in staying
        if not is_finished(pod) or served_at is None or created_at(pod) > served_at
    ]
    return [Patient(pod, RUNTIME_CONTAINER, situation) for pod in sorted(told, key=is_finished)]


def _staying(situation: Situation, wanted_hash: str) -> list[Object]:
    return [
        pod
        for pod in situation.observed.pods
        if not is_leaving(pod) and template_hash(pod) == wanted_hash
    ]
