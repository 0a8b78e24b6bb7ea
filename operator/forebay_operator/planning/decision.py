"""One decision about one InferenceService: pure steps from what is observed to what is wanted."""

from dataclasses import replace
from datetime import datetime

from forebay_operator.observed import Observed
from forebay_operator.planned import Plan
from forebay_operator.planning.children.serving import (
    build_deployment,
    build_disruption_budget,
    build_network_service,
    build_service_account,
)
from forebay_operator.planning.draining.drains import follow_drains
from forebay_operator.planning.draining.leaving import choose_deletion_costs, seconds_to_retell
from forebay_operator.planning.inspection.draft import plan_inspections
from forebay_operator.planning.inspection.knowledge import ModelKnowledge
from forebay_operator.planning.memory_report import report_memory
from forebay_operator.planning.notes import write_notes
from forebay_operator.planning.outlook import Outlook
from forebay_operator.planning.quota.admission import Admission, admit
from forebay_operator.planning.rollout.nudge import choose_nudge
from forebay_operator.planning.rollout.pace import RolloutStep, choose_rollout_step
from forebay_operator.planning.rollout.progress import read_progress
from forebay_operator.planning.rollout.retry import Retry, choose_retry
from forebay_operator.planning.rollout.revision import (
    Revision,
    build_revision,
    find_revision,
    is_of_spec,
    plan_history,
    running_revision,
)
from forebay_operator.planning.scaling.headcount import count_heads
from forebay_operator.planning.scaling.replicas import ScalingStep, plan_replicas
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.sizing import Models, Sizing, plan_sizing
from forebay_operator.planning.standstill import plan_invalid_spec
from forebay_operator.planning.status import build_status
from forebay_operator.service_parser import SpecError, parse_service

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
    knowledge = plan_inspections(situation)
    newest = find_revision(situation)
    sizing = _size_if_needed(situation, knowledge, newest)
    wished = build_revision(situation, knowledge, sizing, newest) or newest
    admission = admit(situation, wished, running_revision(situation))
    max_num_seqs = admission.revision.plan["maxNumSeqs"] if admission.revision else 1
    scaling = plan_replicas(situation, max_num_seqs, admission.limit)
    outlook = _look_out(situation, knowledge, sizing, admission, scaling)
    return _write_plan(outlook, scaling)


def _size_if_needed(
    situation: Situation, knowledge: ModelKnowledge, newest: Revision | None
) -> Sizing:
    """A service that fits is never sized again until its spec changes."""
    if knowledge.inspection is None or is_of_spec(newest, situation.service):
        return Sizing()
    return plan_sizing(situation, Models(knowledge.inspection, knowledge.draft))


def _look_out(
    situation: Situation,
    knowledge: ModelKnowledge,
    sizing: Sizing,
    admission: Admission,
    scaling: ScalingStep,
) -> Outlook:
    revision = admission.revision
    wanted_hash = revision.template_hash if revision else ""
    headcount = count_heads(situation, scaling.num_replicas)
    progress = read_progress(situation, headcount.num_wanted, wanted_hash)
    return Outlook(
        situation=situation,
        knowledge=knowledge,
        sizing=sizing,
        admission=admission,
        num_held_back=scaling.num_held_back,
        revision=revision,
        is_current=is_of_spec(revision, situation.service),
        progress=progress,
        rollout=(
            choose_rollout_step(situation, wanted_hash, progress) if revision else RolloutStep()
        ),
        nudge=choose_nudge(situation, progress),
        headcount=headcount,
        memory=report_memory(situation, revision),
    )


def _write_plan(outlook: Outlook, scaling: ScalingStep) -> Plan:
    situation, headcount = outlook.situation, outlook.headcount
    status = build_status(outlook, scaling.status)
    drains = follow_drains(situation, outlook.wanted_hash)
    memory = replace(
        scaling.memory, leaving=drains.leaving, contest=headcount.contest, is_fresh=False
    )
    if situation.may_refresh:
        memory = replace(memory, reported_at=situation.now)
    history = plan_history(situation, outlook.revision) if outlook.revision else ()
    retry = choose_retry(situation, outlook.wanted_hash) if outlook.revision else Retry()
    return Plan(
        children=_build_children(outlook),
        deletions=(*outlook.knowledge.deletions, *history, *retry.deletions),
        deletion_costs=choose_deletion_costs(situation, headcount.num_told),
        status=status,
        notes=(
            *write_notes(situation, status, scaling.decision),
            *headcount.notes,
            *drains.notes,
            *retry.notes,
        ),
        tallies=(*scaling.tallies, *drains.tallies),
        look_again_seconds=_look_again(outlook, scaling, retry),
        memory=memory,
    )


def _build_children(outlook: Outlook) -> tuple[Manifest, ...]:
    """In the order of need: a pod cannot be created before its account exists."""
    service = outlook.situation.service
    children = [build_service_account(service), build_network_service(service)]
    children += outlook.knowledge.children
    if outlook.revision is not None:
        template, pace = outlook.revision.template, outlook.rollout.pace
        nudge = outlook.nudge.annotations
        num_pods, num_successors = outlook.headcount.num_told, outlook.headcount.num_successors
        children.append(outlook.revision.manifest)
        children.append(build_deployment(service, template, num_pods, pace, nudge))
        children.append(build_disruption_budget(service, num_successors))
    return tuple(children)


def _look_again(outlook: Outlook, scaling: ScalingStep, retry: Retry) -> float | None:
    waits = (
        outlook.knowledge.look_again_seconds,
        outlook.rollout.look_again_seconds,
        outlook.progress.look_again_seconds,
        retry.look_again_seconds,
        scaling.look_again_seconds,
        outlook.headcount.look_again_seconds,
        outlook.memory.look_again_seconds,
        seconds_to_retell(outlook.situation),
        outlook.nudge.look_again_seconds,
        REFUSED_SECONDS if outlook.refusal else None,
    )
    return min((wait for wait in waits if wait is not None), default=None)
