"""One decision about one InferenceService: pure steps from what is observed to what is wanted."""

from dataclasses import replace
from datetime import datetime

from forebay_operator.observed import Observed
from forebay_operator.planned import Plan
from forebay_operator.planning.children.serving import (
    build_deployment,
    build_network_service,
    build_service_account,
)
from forebay_operator.planning.draining import choose_deletion_costs
from forebay_operator.planning.inspection import ModelKnowledge, plan_inspection
from forebay_operator.planning.notes import write_notes
from forebay_operator.planning.outlook import Outlook
from forebay_operator.planning.progress import read_progress
from forebay_operator.planning.revision import (
    Revision,
    build_revision,
    is_of_spec,
    newest_revision,
    plan_history,
)
from forebay_operator.planning.rollout import RolloutStep, choose_nudge, choose_rollout_step
from forebay_operator.planning.scaling import ScalingStep, plan_replicas
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.sizing import Sizing, plan_sizing
from forebay_operator.planning.standstill import plan_invalid_spec
from forebay_operator.planning.status import build_status
from forebay_operator.service import SpecError, parse_service

REFUSED_SECONDS = 30.0
"""When to try again what the API server refused: no event tells that a quota grew."""


def plan(observed: Observed, now: datetime) -> Plan:
    """Decide what one InferenceService needs now; pure, and the same for the same picture."""
    if observed.service["metadata"].get("deletionTimestamp"):
        return Plan()
    try:
        situation = Situation(observed, parse_service(observed.service), now)
    except SpecError as error:
        return plan_invalid_spec(observed, str(error), now)
    knowledge = plan_inspection(situation)
    newest = newest_revision(situation)
    sizing = _size_if_needed(situation, knowledge, newest)
    revision = build_revision(situation, knowledge, sizing, newest) or newest
    scaling = plan_replicas(situation, revision.plan["maxNumSeqs"] if revision else 1)
    outlook = _look_out(situation, knowledge, sizing, revision, scaling.num_replicas)
    return _write_plan(outlook, scaling)


def _size_if_needed(
    situation: Situation, knowledge: ModelKnowledge, newest: Revision | None
) -> Sizing:
    """A service that fits is never sized again until its spec changes."""
    if knowledge.inspection is None or is_of_spec(newest, situation.service):
        return Sizing()
    return plan_sizing(situation, knowledge.inspection)


def _look_out(
    situation: Situation,
    knowledge: ModelKnowledge,
    sizing: Sizing,
    revision: Revision | None,
    num_replicas: int,
) -> Outlook:
    wanted_hash = revision.template_hash if revision else ""
    progress = read_progress(situation, num_replicas, wanted_hash)
    return Outlook(
        situation=situation,
        knowledge=knowledge,
        sizing=sizing,
        revision=revision,
        is_current=is_of_spec(revision, situation.service),
        progress=progress,
        rollout=choose_rollout_step(situation, wanted_hash) if revision else RolloutStep(),
        nudge=choose_nudge(progress, situation.now),
    )


def _write_plan(outlook: Outlook, scaling: ScalingStep) -> Plan:
    situation = outlook.situation
    status = build_status(outlook, scaling.status)
    memory = scaling.memory
    if situation.may_refresh:
        memory = replace(memory, reported_at=situation.now)
    history = plan_history(situation, outlook.revision) if outlook.revision else ()
    return Plan(
        children=_build_children(outlook, scaling.num_replicas),
        deletions=(*outlook.knowledge.deletions, *history),
        deletion_costs=choose_deletion_costs(situation, scaling.num_replicas),
        status=status,
        notes=write_notes(situation, status, scaling.decision),
        tallies=scaling.tallies,
        scaling_inputs=scaling.inputs,
        look_again_seconds=_look_again(outlook, scaling),
        memory=memory,
    )


def _build_children(outlook: Outlook, num_replicas: int) -> tuple[Manifest, ...]:
    """In the order of need: a pod cannot be created before its account exists."""
    service = outlook.situation.service
    children = [build_service_account(service), build_network_service(service)]
    children += outlook.knowledge.children
    if outlook.revision is not None:
        template, pace = outlook.revision.template, outlook.rollout.pace
        children.append(outlook.revision.manifest)
        children.append(build_deployment(service, template, num_replicas, pace, outlook.nudge))
    return tuple(children)


def _look_again(outlook: Outlook, scaling: ScalingStep) -> float | None:
    waits = (
        outlook.knowledge.look_again_seconds,
        outlook.rollout.look_again_seconds,
        outlook.progress.look_again_seconds,
        scaling.look_again_seconds,
        outlook.nudge.look_again_seconds,
        REFUSED_SECONDS if outlook.refusal else None,
    )
    return min((wait for wait in waits if wait is not None), default=None)
