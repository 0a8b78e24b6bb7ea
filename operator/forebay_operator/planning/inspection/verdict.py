"""What an inspection Job came to: its pod's last words, what its pod waits for, or its own end."""

import json
import re
from dataclasses import dataclass
from datetime import datetime

from forebay_budget.inspection import Inspection, ModelError
from forebay_operator.objects import uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.planning.causes.crashes import last_words
from forebay_operator.planning.causes.diagnosis import diagnose_pod, explain_taking
from forebay_operator.planning.causes.patient import Patient
from forebay_operator.planning.causes.refusals import explain_refusal
from forebay_operator.planning.causes.suspension import SUSPENDED, explain_suspension
from forebay_operator.planning.children.inspection_job import CONTAINER, MEMORY_LIMIT
from forebay_operator.planning.children.model_source import name_as_written
from forebay_operator.planning.pods import created_at
from forebay_operator.planning.situation import Situation, find_condition
from forebay_operator.planning.timestamps import parse_time, seconds_since
from forebay_operator.service import Model

_RETRIED_WHILE_STUCK = frozenset({"ImagePullFailed", "InvalidImageName"})
"""What the kubelet backs off from for up to five minutes; all else that is stuck heals in place."""

_REASON = re.compile(r"[A-Z][A-Za-z]{0,99}")

LAST_WORDS_SECONDS = 10.0
"""How long a failed Job's pod is waited for."""


@dataclass(frozen=True)
class Verdict:
    """What a Job came to."""

    inspection: Inspection | None = None
    cause: Cause | None = None
    is_lost: bool = False
    """It succeeded, but what it found can no longer be read."""
    retry_from: datetime | None = None
    """When the failure became a fact; None where waiting is better than trying again."""


def read_verdict(situation: Situation, job: Object) -> Verdict:
    """Success, a cause, or neither yet."""
    pod = pod_of(situation, job)
    finish = finish_of(job)
    if job["spec"].get("suspend") and not finish:
        return Verdict(cause=explain_suspension(job))
    if pod is None:
        return _verdict_without_pod(situation, job, finish)
    patient = Patient(pod, CONTAINER, situation)
    if cause := explain_taking(patient):
        return Verdict(cause=cause, retry_from=_end_of(job))
    ended = (patient.status.get("state") or {}).get("terminated")
    if ended:
        return _verdict_of_end(ended, job, situation)
    cause = diagnose_pod(patient)
    if cause is None and _has_failed_for_long(finish, situation.now):
        return _verdict_without_pod(situation, job, finish)
    if finish.get("type") == "Failed":
        return Verdict(cause=cause, retry_from=_end_of(job))
    is_retried = cause is not None and cause.reason in _RETRIED_WHILE_STUCK
    return Verdict(cause=cause, retry_from=created_at(job) if is_retried else None)


def _end_of(job: Object) -> datetime:
    """When it was over; its beginning, where nobody says. Never now, which would never pass."""
    ended_at = finish_of(job).get("lastTransitionTime")
    return parse_time(ended_at) if ended_at else created_at(job)


def _has_failed_for_long(finish: Object, now: datetime) -> bool:
    """Whether the pod had time to say why: a Job's end may be seen before its pod's."""
    if finish.get("type") != "Failed":
        return False
    return seconds_since(finish["lastTransitionTime"], now) >= LAST_WORDS_SECONDS


def _verdict_of_end(ended: Object, job: Object, situation: Situation) -> Verdict:
    # A kubelet that lost sight of a container does not know when it ended.
    finished_at = parse_time(ended["finishedAt"]) if ended.get("finishedAt") else _end_of(job)
    message = ended.get("message", "")
    if ended.get("reason") == "OOMKilled":
        cause = Cause(
            "InspectionOutOfMemory",
            f"Reading the headers of {situation.service.model.uri} took more than the "
            f"{MEMORY_LIMIT} of memory that the inspection has; no known model's are as large, "
            "so see that the uri names the right one, and please report it if it does.",
        )
        return Verdict(cause=cause, retry_from=finished_at)
    try:
        if ended.get("exitCode") == 0:
            return Verdict(inspection=Inspection.from_json(message))
        return Verdict(
            cause=_stated_error(message, ended, situation.service.model), retry_from=finished_at
        )
    except (ModelError, RecursionError) as error:
        cause = Cause("InspectionFailed", f"The inspection's result is unreadable: {error}")
        return Verdict(cause=cause, retry_from=finished_at)


def _stated_error(message: str, ended: Object, model: Model) -> Cause:
    """What the inspection wrote before it exited with an error."""
    try:
        error = json.loads(message)["error"]
        reason = _REASON.fullmatch(error["reason"])
        told = name_as_written(str(error["message"]), model)
        return Cause(reason[0] if reason else "InspectionFailed", told)
    except (ValueError, KeyError, TypeError, RecursionError):
        words = last_words(message) or "it left no last words"
        return Cause(
            "InspectionFailed",
            f"The inspection exited with code {ended.get('exitCode')}: {words}.",
        )


def _verdict_without_pod(situation: Situation, job: Object, finish: Object) -> Verdict:
    """No pod yet, none could be created, or it is gone."""
    if finish.get("type") == "Complete":
        return Verdict(is_lost=True)
    if finish.get("type") == "Failed":
        failed_at = parse_time(finish["lastTransitionTime"])
        return Verdict(cause=_cause_of_failed_job(finish, situation, job), retry_from=failed_at)
    refused = [
        event
        for event in situation.warnings_about(uid_of(job))
        if event.get("reason") == "FailedCreate"
    ]
    if not refused:
        return Verdict()
    cause = explain_refusal(refused[-1].get("message", ""), situation.service.model.uri)
    return Verdict(cause=cause, retry_from=created_at(job))


def _cause_of_failed_job(finish: Object, situation: Situation, job: Object) -> Cause:
    """A Job that passed its deadline has no pod any more; what was seen of it before says more."""
    if standing := standing_cause(situation):
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


def pod_of(situation: Situation, job: Object) -> Object | None:
    """The Job's own pod, newest first: another Job's may carry the same label."""
    owned = [pod for pod in situation.observed.job_pods if _is_owned(pod, uid_of(job))]
    return owned[-1] if owned else None


def _is_owned(pod: Object, uid: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)


def standing_cause(situation: Situation, job: Object | None = None) -> Cause | None:
    """While the same model is tried again, the last failure stays reported.

    It does not where the very Job that failed goes on by itself: then the failure is mended. To be
    held back is no failure.
    """
    condition = situation.previous_condition("ModelInspected")
    is_same_spec = condition.get("observedGeneration") == situation.service.generation
    if condition.get("status") != "False" or not is_same_spec:
        return None
    if condition["reason"] == SUSPENDED:
        return None
    if job is not None and created_at(job) < parse_time(condition["lastTransitionTime"]):
        return None
    return Cause(condition["reason"], condition["message"])


def finish_of(job: Object) -> Object:
    """The condition by which a Job is over; empty before."""
    conditions = (job.get("status") or {}).get("conditions")
    finished = (find_condition(conditions, kind) for kind in ("Complete", "Failed"))
    return next((entry for entry in finished if entry.get("status") == "True"), {})
