"""Get to know the model: start the inspection Job, read its verdict, try again ever later.

No counter is kept: the delay grows with the time since the first failure, which is when the
condition `ModelInspected` became False.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from forebay_budget.inspection import Inspection, ModelError
from forebay_budget.quantity import format_bytes
from forebay_operator.kinds import JOB
from forebay_operator.observed import Object
from forebay_operator.planned import ObjectRef
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.children.inspection_job import build_inspection_job
from forebay_operator.planning.children.metadata import reference_to
from forebay_operator.planning.inspection.pin import find_pinned_uri, warn_of_tag
from forebay_operator.planning.inspection.verdict import (
    Verdict,
    finish_of,
    pod_of,
    read_verdict,
    standing_cause,
)
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.timestamps import parse_time

FIRST_DELAY_SECONDS = 10.0
LONGEST_DELAY_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 30.0


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
    tag_warning: str = ""
    """Where the model is an image that is named by a tag."""
    draft: Inspection | None = None
    """The draft model's, where one is asked for; nothing is known before both are."""
    draft_model: Manifest | None = None
    """`status.draft`."""


def plan_inspection(situation: Situation) -> ModelKnowledge:
    """Know the model, or say why not and what is being done about it."""
    if known := _known_inspection(situation):
        kept = situation.previous["model"].get("pinnedUri", "")
        return _knowing(situation, known, kept, _all_unfinished(situation))
    wanted = build_inspection_job(situation.service, situation.observed.settings)
    job = _find_job(situation, wanted["metadata"]["name"])
    stale = tuple(reference_to(other, JOB) for other in situation.observed.jobs if other is not job)
    if job is None:
        return _waiting(situation, stale, (wanted,))
    if job["metadata"].get("deletionTimestamp"):
        return _waiting(situation, stale)
    verdict = read_verdict(situation, job)
    if verdict.inspection is not None:
        model, revision = situation.service.model, verdict.inspection.revision
        pinned_uri = find_pinned_uri(model, revision, pod_of(situation, job))
        return _knowing(situation, verdict.inspection, pinned_uri, stale)
    if verdict.is_lost:
        return _waiting(situation, (*stale, reference_to(job, JOB)))
    if verdict.cause is None:
        return replace(
            _waiting(situation, stale, (wanted,)),
            cause=standing_cause(situation, job),
            look_again_seconds=LOOK_AGAIN_SECONDS,
        )
    return _failing(situation, stale, job, wanted, verdict)


def describe_model(inspection: Inspection, warning: str = "") -> str:
    """One sentence about a known model, and one that warns of its tag."""
    described = (
        f"{inspection.config.architecture} with {inspection.num_parameters:,} parameters, "
        f"{format_bytes(inspection.weights_bytes)} of weights, {_name_revision(inspection)}."
    )
    return f"{described} {warning}".rstrip()


def _name_revision(inspection: Inspection) -> str:
    """A hub's commit, or the fingerprint that must not be taken for an image's digest."""
    is_digest = inspection.revision.startswith("sha256:")
    return f"{'headers' if is_digest else 'revision'} {inspection.revision}"


def _known_inspection(situation: Situation) -> Inspection | None:
    kept, model = situation.previous.get("model") or {}, situation.service.model
    if (kept.get("uri"), kept.get("secretName", "")) != (model.uri, model.secret_name):
        return None
    try:
        return Inspection.from_json(kept.get("inspection", ""))
    except ModelError:
        return None


def _knowing(
    situation: Situation,
    inspection: Inspection,
    pinned_uri: str,
    deletions: tuple[ObjectRef, ...],
) -> ModelKnowledge:
    model = {
        "uri": situation.service.model.uri,
        "architecture": inspection.config.architecture,
        "numParameters": inspection.num_parameters,
        "weightsBytes": inspection.weights_bytes,
        "revision": inspection.revision,
        "inspection": inspection.to_json(),
    }
    if pinned_uri:
        model["pinnedUri"] = pinned_uri
    if situation.service.model.secret_name:
        model["secretName"] = situation.service.model.secret_name
    warning = warn_of_tag(situation.service.model, pinned_uri)
    return ModelKnowledge(inspection, model=model, deletions=deletions, tag_warning=warning)


def _waiting(
    situation: Situation,
    deletions: tuple[ObjectRef, ...],
    children: tuple[Manifest, ...] = (),
) -> ModelKnowledge:
    return ModelKnowledge(
        cause=standing_cause(situation),
        model=_kept_model(situation),
        children=children,
        deletions=deletions,
    )


def _failing(
    situation: Situation,
    stale: tuple[ObjectRef, ...],
    job: Object,
    wanted: Manifest,
    verdict: Verdict,
) -> ModelKnowledge:
    """Report the failure; when its delay has passed, make room for the next Job."""
    failing = ModelKnowledge(cause=verdict.cause, model=_kept_model(situation), deletions=stale)
    if verdict.retry_from is None:
        return replace(failing, children=(wanted,), look_again_seconds=LOOK_AGAIN_SECONDS)
    waited = (situation.now - verdict.retry_from).total_seconds()
    remaining = _retry_delay(situation, verdict.retry_from) - waited
    if remaining > 0:
        return replace(failing, children=(wanted,), look_again_seconds=remaining)
    return replace(failing, deletions=(*stale, reference_to(job, JOB)))


def _retry_delay(situation: Situation, failed_at: datetime) -> float:
    """As long as it has failed already, within bounds: the time between tries doubles."""
    condition = situation.previous_condition("ModelInspected")
    if condition.get("status") != "False":
        return FIRST_DELAY_SECONDS
    failing_for = (failed_at - parse_time(condition["lastTransitionTime"])).total_seconds()
    return min(max(failing_for, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS)


def _kept_model(situation: Situation) -> Manifest | None:
    kept = situation.previous.get("model")
    return dict(kept) if kept else None


def _find_job(situation: Situation, name: str) -> Object | None:
    return next((job for job in situation.observed.jobs if job["metadata"]["name"] == name), None)


def _all_unfinished(situation: Situation) -> tuple[ObjectRef, ...]:
    """Finished Jobs end by their TTL, so that a person can still read their logs."""
    jobs = situation.observed.jobs
    return tuple(reference_to(job, JOB) for job in jobs if not finish_of(job))
