"""Get to know the model and, where tokens are proposed by one, its draft model: by a Job each.

What is done for the served model is done for the draft model over the part of the picture that is
its own: its Jobs, and what status said of it.
"""

from dataclasses import replace

from forebay_operator.kinds import INSPECTED_LABEL
from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.inspection.knowledge import ModelKnowledge, plan_inspection
from forebay_operator.planning.situation import Situation
from forebay_operator.service import Model


def plan_inspections(situation: Situation) -> ModelKnowledge:
    """Know all models that the pods load, or say why not and what is being done about it."""
    draft = situation.service.draft
    if draft is None:
        return plan_inspection(situation)
    served = plan_inspection(_see(situation, None))
    return _join(served, plan_inspection(_see(situation, draft)), draft)


def _see(situation: Situation, draft: Model | None) -> Situation:
    """The part of the picture that is the served model's, or the draft model's."""
    observed, service = situation.observed, situation.service
    is_draft = draft is not None
    jobs = tuple(job for job in observed.jobs if _is_of_draft(job) == is_draft)
    if draft is None:
        return replace(situation, observed=replace(observed, jobs=jobs))
    status = dict(situation.previous)
    status["model"] = status.get("draft")
    seen = replace(observed, jobs=jobs, service={**observed.service, "status": status})
    return replace(situation, observed=seen, service=replace(service, model=draft))


def _is_of_draft(job: Object) -> bool:
    return (job["metadata"].get("labels") or {}).get(INSPECTED_LABEL) == "draft"


def _join(served: ModelKnowledge, drafted: ModelKnowledge, draft: Model) -> ModelKnowledge:
    """What is known of both; of nothing, while one is unknown, as neither serves alone."""
    cause = served.cause
    if cause is None and drafted.cause is not None:
        told = f"The draft model {draft.uri}: {drafted.cause.message}"
        cause = Cause(drafted.cause.reason, told, drafted.cause.may_pass)
    waits = (served.look_again_seconds, drafted.look_again_seconds)
    return ModelKnowledge(
        inspection=served.inspection if drafted.inspection is not None else None,
        cause=cause,
        model=served.model,
        children=(*served.children, *drafted.children),
        deletions=(*served.deletions, *drafted.deletions),
        look_again_seconds=min((wait for wait in waits if wait is not None), default=None),
        tag_warning=" ".join(filter(None, (served.tag_warning, drafted.tag_warning))),
        draft=drafted.inspection,
        draft_model=drafted.model,
    )
