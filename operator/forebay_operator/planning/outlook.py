"""All that the steps of one decision found, for the conditions to speak of."""

from dataclasses import dataclass

from forebay_operator.observed import Observed
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.causes.device import explain_cpu
from forebay_operator.planning.causes.refusals import explain_refusal
from forebay_operator.planning.inspection.knowledge import ModelKnowledge
from forebay_operator.planning.memory_report import MemoryReport
from forebay_operator.planning.quota.admission import Admission
from forebay_operator.planning.rollout.nudge import Nudge
from forebay_operator.planning.rollout.pace import RolloutStep
from forebay_operator.planning.rollout.progress import Progress
from forebay_operator.planning.rollout.revision import Revision
from forebay_operator.planning.scaling.headcount import Headcount
from forebay_operator.planning.situation import Situation
from forebay_operator.planning.sizing import Sizing


@dataclass(frozen=True)
class Outlook:
    """What is known, wanted and reached."""

    situation: Situation
    knowledge: ModelKnowledge
    sizing: Sizing
    admission: Admission
    num_held_back: int
    """Replicas that the spec asks for and a quota does not grant."""
    revision: Revision | None
    """What the Deployment gets: of this spec, or the last one that could be run."""
    is_current: bool
    """Whether the revision was rendered from this spec."""
    progress: Progress
    rollout: RolloutStep
    nudge: Nudge
    headcount: Headcount
    memory: MemoryReport = MemoryReport()

    @property
    def wanted_hash(self) -> str:
        """Of the template that the Deployment gets; empty where there is none."""
        return self.revision.template_hash if self.revision else ""

    @property
    def refusal(self) -> Cause | None:
        """Why children could not be written."""
        observed = self.situation.observed
        if observed.foreign:
            return _explain_foreign(observed)
        if observed.apply_error:
            return explain_refusal(observed.apply_error, self.situation.service.model.uri)
        return None

    @property
    def device_cause(self) -> Cause | None:
        """Why pods that serve are not what was asked for."""
        return explain_cpu(self.situation, self.wanted_hash)

    @property
    def is_held_back(self) -> bool:
        """Whether pods of this spec, or some of them, may not run before a quota grants them."""
        is_granted = self.admission.verdict not in ("Refused", "Pending")
        return not is_granted and (not self.is_current or self.num_held_back > 0)

    @property
    def cause(self) -> Cause | None:
        """The first thing in an object's life that is wrong."""
        candidates = (
            self.refusal,
            None if self.is_current else self.knowledge.cause,
            None if self.is_current else self.sizing.cause,
            self.admission.cause if self.is_held_back else None,
            self.creation_cause,
            self._unless_room_is_made(self.progress.pod_cause),
            self.device_cause,
            _explain_pause(self.situation) if self.progress.is_paused else None,
            _explain_overdue(self.situation) if self.is_overdue else None,
        )
        return next((cause for cause in candidates if cause is not None), None)

    @property
    def creation_cause(self) -> Cause | None:
        """Why pods are refused."""
        return self._unless_room_is_made(self.progress.creation_cause)

    @property
    def is_overdue(self) -> bool:
        """Its progress deadline has passed, and nothing is being done about it."""
        return self.progress.is_overdue and not self.rollout.makes_room

    def _unless_room_is_made(self, cause: Cause | None) -> Cause | None:
        is_room = cause is not None and cause.reason in ("Unschedulable", "QuotaExceeded")
        return None if is_room and self.rollout.makes_room else cause

    @property
    def is_ready(self) -> bool:
        """This generation, all wanted replicas, behind their Service."""
        return (
            self.is_current
            and self.progress.is_complete
            and self.refusal is None
            and self.device_cause is None
            and not self.is_held_back
            and self.situation.observed.network_service is not None
        )


def _explain_foreign(observed: Observed) -> Cause:
    """Who owns nothing that we wrote has lost its owner; everything else is not ours to judge."""
    names = " and ".join(observed.foreign)
    was, them = ("was", "it") if len(observed.foreign) == 1 else ("were", "them")
    if observed.orphans == observed.foreign:
        return Cause(
            "ChildNameTaken",
            f"{names} {was} left behind without an owner, as by kubectl delete --cascade=orphan, "
            f"and {was} left alone; delete {them}, which ends the pods of a Deployment, or give "
            "this InferenceService another name.",
        )
    return Cause(
        "ChildNameTaken",
        f"{names} {was} there already, of someone else, and {was} left alone; delete or rename "
        f"{them}, or give this InferenceService another name.",
    )


def _explain_pause(situation: Situation) -> Cause:
    name = situation.service.name
    return Cause(
        "DeploymentPaused",
        f"Deployment {name} was paused by somebody, so this generation does not roll out; run "
        f"kubectl rollout resume deployment/{name}.",
    )


def _explain_overdue(situation: Situation) -> Cause:
    seconds = situation.service.rollout.progress_deadline_seconds
    return Cause(
        "ProgressDeadlineExceeded",
        f"The rollout made no progress for {seconds} seconds "
        "(spec.rollout.progressDeadlineSeconds); see kubectl describe pods for what its pods wait "
        "for.",
    )
