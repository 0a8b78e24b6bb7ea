"""Get to know the model: start the inspection Job, read its verdict, try again ever later.

No counter is kept: the delay grows with the time since the first failure, which is when the
condition `ModelInspected` became False.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime

from forebay_budget.inspection import Inspection, ModelError
from forebay_budget.quantity import format_bytes
from forebay_operator.observed import Object
from forebay_operator.planned import ObjectRef
from forebay_operator.planning.causes import Cause, explain_refusal, trim
from forebay_operator.planning.diagnosis import Patient, diagnose_pod, last_words
from forebay_operator.planning.inspection_job import CONTAINER, build_inspection_job
from forebay_operator.planning.model_source import name_as_written
from forebay_operator.planning.pods import container_status
from forebay_operator.planning.references import reference_to
from forebay_operator.planning.situation import (
    Manifest,
    Situation,
    event_text,
    find_condition,
)
from forebay_operator.planning.timestamps import parse_time
from forebay_operator.service import Model

FIRST_DELAY_SECONDS = 10.0
LONGEST_DELAY_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 30.0
_RETRIED_WHILE_STUCK = frozenset({"ImagePullFailed", "InvalidImageName"})
"""What the kubelet backs off from for up to five minutes; all else that is stuck heals in place."""


@dataclass(frozen=True)
class ModelKnowledge:
    """What is known of the model, and what is done to know it."""

    inspection: Inspection | None = None
    cause: Cause | None = None
    model: Manifest | None = None
    """`status.model`; that of the model before while a new one is unknown."""
    children: tuple[Manifest, ...] = ()
    deletions: tuple[ObjectRef, ...] = ()
    look_again_seconds: float | None = None


@dataclass(frozen=True)
class _Verdict:
    """What a Job came to."""

    inspection: Inspection | None = None
    cause: Cause | None = None
    is_lost: bool = False
    """It succeeded, but what it found can no longer be read."""
    retry_from: datetime | None = None
    """When the failure became a fact; None where waiting is better than trying again."""


def plan_inspection(situation: Situation) -> ModelKnowledge:
    """Know the model, or say why not and what is being done about it."""
    if known := _known_inspection(situation):
        return _knowing(situation, known, _all_unfinished(situation))
    wanted = build_inspection_job(situation.service, situation.observed.settings)
    job = _find_job(situation, wanted["metadata"]["name"])
    stale = tuple(reference_to(other) for other in situation.observed.jobs if other is not job)
    if job is None:
        return _waiting(situation, stale, (wanted,))
    if job["metadata"].get("deletionTimestamp"):
        return _waiting(situation, stale)
    verdict = _read_verdict(situation, job)
    if verdict.inspection is not None:
        return _knowing(situation, verdict.inspection, stale)
    if verdict.is_lost:
        return _waiting(situation, (*stale, reference_to(job)))
    if verdict.cause is None:
        return _waiting(situation, stale, (wanted,))
    failing = _failing(situation, job, wanted, verdict)
    return replace(failing, deletions=(*stale, *failing.deletions))


def describe_model(inspection: Inspection) -> str:
    """One sentence about a known model."""
    return (
        f"{inspection.config.architecture} with {inspection.num_parameters:,} parameters, "
        f"{format_bytes(inspection.weights_bytes)} of weights, revision {inspection.revision}."
    )


def _known_inspection(situation: Situation) -> Inspection | None:
    kept, model = situation.previous.get("model") or {}, situation.service.model
    if (kept.get("uri"), kept.get("secretName", "")) != (model.uri, model.secret_name):
        return None
    try:
        return Inspection.from_json(kept.get("inspection", ""))
    except ModelError:
        return None


def _knowing(
    situation: Situation, inspection: Inspection, deletions: tuple[ObjectRef, ...]
) -> ModelKnowledge:
    model = {
        "uri": situation.service.model.uri,
        "architecture": inspection.config.architecture,
        "numParameters": inspection.num_parameters,
        "weightsBytes": inspection.weights_bytes,
        "revision": inspection.revision,
        "inspection": inspection.to_json(),
    }
    if situation.service.model.secret_name:
        model["secretName"] = situation.service.model.secret_name
    return ModelKnowledge(inspection=inspection, model=model, deletions=deletions)


def _waiting(
    situation: Situation,
    deletions: tuple[ObjectRef, ...],
    children: tuple[Manifest, ...] = (),
) -> ModelKnowledge:
    return ModelKnowledge(
        cause=_standing_cause(situation),
        model=_kept_model(situation),
        children=children,
        deletions=deletions,
    )


def _failing(
    situation: Situation, job: Object, wanted: Manifest, verdict: _Verdict
) -> ModelKnowledge:
    """Report the failure; when its delay has passed, make room for the next Job."""
    failing = ModelKnowledge(cause=verdict.cause, model=_kept_model(situation))
    if verdict.retry_from is None:
        return replace(failing, children=(wanted,), look_again_seconds=LOOK_AGAIN_SECONDS)
    waited = (situation.now - verdict.retry_from).total_seconds()
    remaining = _retry_delay(situation, verdict.retry_from) - waited
    if remaining > 0:
        return replace(failing, children=(wanted,), look_again_seconds=remaining)
    return replace(failing, deletions=(reference_to(job),))


def _retry_delay(situation: Situation, failed_at: datetime) -> float:
    """As long as it has failed already, within bounds: the time between tries doubles."""
    condition = situation.previous_condition("ModelInspected")
    if condition.get("status") != "False":
        return FIRST_DELAY_SECONDS
    failing_for = (failed_at - parse_time(condition["lastTransitionTime"])).total_seconds()
    return min(max(failing_for, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS)


def _standing_cause(situation: Situation) -> Cause | None:
    """While the same model is tried again, the last failure stays reported."""
    condition = situation.previous_condition("ModelInspected")
    is_same_spec = condition.get("observedGeneration") == situation.service.generation
    if condition.get("status") != "False" or not is_same_spec:
        return None
    return Cause(condition["reason"], condition["message"])


def _kept_model(situation: Situation) -> Manifest | None:
    kept = situation.previous.get("model")
    return dict(kept) if kept else None


def _find_job(situation: Situation, name: str) -> Object | None:
    return next((job for job in situation.observed.jobs if job["metadata"]["name"] == name), None)


def _all_unfinished(situation: Situation) -> tuple[ObjectRef, ...]:
    """Finished Jobs end by their TTL, so that a person can still read their logs."""
    jobs = situation.observed.jobs
    return tuple(reference_to(job) for job in jobs if not _finish_of(job))


def _finish_of(job: Object) -> Object:
    conditions = (job.get("status") or {}).get("conditions")
    finished = (find_condition(conditions, kind) for kind in ("Complete", "Failed"))
    return next((entry for entry in finished if entry.get("status") == "True"), {})


def _read_verdict(situation: Situation, job: Object) -> _Verdict:
    pod = _pod_of(situation, job)
    finish = _finish_of(job)
    if pod is None:
        return _verdict_without_pod(situation, job, finish)
    ended = (container_status(pod, CONTAINER).get("state") or {}).get("terminated")
    if ended:
        return _verdict_of_end(ended, situation)
    patient = Patient(
        pod, CONTAINER, situation.service, situation.warnings_about(_uid(pod)), situation.now
    )
    cause = diagnose_pod(patient)
    if cause is None and finish.get("type") == "Failed":
        return _verdict_without_pod(situation, job, finish)
    is_retried = cause is not None and cause.reason in _RETRIED_WHILE_STUCK
    return _Verdict(cause=cause, retry_from=_created(job) if is_retried else None)


def _verdict_of_end(ended: Object, situation: Situation) -> _Verdict:
    finished_at = parse_time(ended["finishedAt"]) if ended.get("finishedAt") else situation.now
    message = ended.get("message", "")
    if ended.get("reason") == "OOMKilled":
        cause = Cause("InspectionOutOfMemory", "The inspection of the model ran out of memory.")
        return _Verdict(cause=cause, retry_from=finished_at)
    try:
        if ended.get("exitCode") == 0:
            return _Verdict(inspection=Inspection.from_json(message))
        return _Verdict(
            cause=_stated_error(message, ended, situation.service.model), retry_from=finished_at
        )
    except ModelError as error:
        cause = Cause("InspectionFailed", f"The inspection's result is unreadable: {error}")
        return _Verdict(cause=cause, retry_from=finished_at)


def _stated_error(message: str, ended: Object, model: Model) -> Cause:
    """What the inspection wrote before it exited with an error."""
    try:
        error = json.loads(message)["error"]
        return Cause(str(error["reason"]), name_as_written(str(error["message"]), model))
    except (ValueError, KeyError, TypeError):
        words = last_words(message) or "it left no last words"
        return Cause(
            "InspectionFailed",
            f"The inspection exited with code {ended.get('exitCode')}: {words}.",
        )


def _verdict_without_pod(situation: Situation, job: Object, finish: Object) -> _Verdict:
    """No pod yet, none could be created, or it is gone."""
    if finish.get("type") == "Complete":
        return _Verdict(is_lost=True)
    if finish.get("type") == "Failed":
        failed_at = parse_time(finish["lastTransitionTime"])
        return _Verdict(cause=_cause_of_failed_job(finish, situation, job), retry_from=failed_at)
    refused = [
        event
        for event in situation.warnings_about(_uid(job))
        if event.get("reason") == "FailedCreate"
    ]
    if not refused:
        return _Verdict()
    cause = explain_refusal(event_text(refused[-1]), situation.service.model.uri)
    return _Verdict(cause=cause, retry_from=_created(job))


def _cause_of_failed_job(finish: Object, situation: Situation, job: Object) -> Cause:
    """A Job that passed its deadline has no pod any more; what was seen of it before says more."""
    if standing := _standing_cause(situation):
        return standing
    if finish.get("reason") == "DeadlineExceeded":
        seconds = job["spec"].get("activeDeadlineSeconds")
        return Cause(
            "InspectionTimedOut",
            f"The model was not read within {seconds} seconds; raise spec.startup.timeoutSeconds "
            "if its image or volume needs longer to arrive.",
        )
    said = trim(finish.get("message", "")) or "no reason was given"
    return Cause("InspectionFailed", f"The inspection Job failed: {said}.")


def _pod_of(situation: Situation, job: Object) -> Object | None:
    """The Job's own pod, newest first: another Job's may carry the same label."""
    owned = [pod for pod in situation.observed.job_pods if _is_owned(pod, _uid(job))]
    return owned[-1] if owned else None


def _is_owned(pod: Object, uid: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def _uid(thing: Object) -> str:
    uid: str = thing["metadata"].get("uid", "")
    return uid


def _created(job: Object) -> datetime:
    return parse_time(job["metadata"]["creationTimestamp"])
