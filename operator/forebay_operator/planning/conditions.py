"""The conditions: one pure function each, from the outlook to a status, a reason and a sentence.

A condition that does not apply is absent. Their order is that of an object's life.
"""

from forebay_operator.planning.condition import Condition, Status, failed
from forebay_operator.planning.inspection.knowledge import describe_model
from forebay_operator.planning.memory_report import judge_memory
from forebay_operator.planning.outlook import Outlook
from forebay_operator.planning.quota.admission import PENDING
from forebay_operator.planning.rollout.pace import REPLACING
from forebay_operator.planning.rollout.progress import Progress
from forebay_operator.planning.scaling.contest import CONDITION as CONTEST
from forebay_operator.planning.scaling.contest import describe_contest


def build_conditions(outlook: Outlook) -> tuple[Condition, ...]:
    """Every condition that applies."""
    ready = _judge_ready(outlook)
    found = (
        _judge_model(outlook),
        _judge_fit(outlook),
        _judge_admission(outlook),
        _judge_creation(outlook),
        _judge_progress(outlook),
        _judge_memory(outlook),
        _judge_availability(outlook),
        ready,
        _judge_activity(outlook, ready),
        _judge_contest(outlook),
    )
    return tuple(condition for condition in found if condition is not None)


def _judge_model(outlook: Outlook) -> Condition:
    knowledge = outlook.knowledge
    if knowledge.inspection is not None:
        return Condition(
            "ModelInspected",
            "True",
            "Inspected",
            describe_model(knowledge.inspection, knowledge.tag_warning),
        )
    if knowledge.cause is not None:
        return failed("ModelInspected", knowledge.cause)
    uri = outlook.situation.service.model.uri
    return Condition("ModelInspected", "Unknown", "Inspecting", f"The headers of {uri} are read.")


def _judge_fit(outlook: Outlook) -> Condition | None:
    if outlook.is_current and outlook.revision is not None:
        return Condition("Fits", "True", "Fits", outlook.revision.plan["explanation"])
    if outlook.sizing.fit is not None:
        return Condition("Fits", "True", "Fits", outlook.sizing.fit.explanation)
    return failed("Fits", outlook.sizing.cause) if outlook.sizing.cause else None


def _judge_admission(outlook: Outlook) -> Condition | None:
    """Told also while what runs is within what is granted: the most replicas are not."""
    admission = outlook.admission
    if admission.verdict is None:
        return None
    if admission.cause is not None:
        return failed("Admitted", admission.cause)
    if admission.verdict == "Pending":
        return Condition("Admitted", "Unknown", PENDING, admission.message)
    return Condition("Admitted", "True", "WithinQuota", admission.message)


def _judge_creation(outlook: Outlook) -> Condition | None:
    cause = outlook.refusal or outlook.creation_cause
    if cause is not None:
        return failed("PodsCreated", cause)
    if outlook.revision is None:
        return None
    progress = outlook.progress
    num_existing = min(progress.num_existing, progress.num_wanted)
    message = f"{num_existing} of {progress.num_wanted} wanted pods exist."
    if num_existing == progress.num_wanted:
        return Condition("PodsCreated", "True", "PodsCreated", message)
    return Condition("PodsCreated", "Unknown", "Creating", message)


def _judge_progress(outlook: Outlook) -> Condition | None:
    if outlook.revision is None:
        return None
    if outlook.cause is not None:
        return failed("Progressing", outlook.cause)
    if outlook.is_held_back:
        return Condition("Progressing", "True", PENDING, outlook.admission.message)
    if not outlook.is_current:
        message = "Pods of an earlier spec are kept until the new model is known."
        return Condition("Progressing", "True", "Inspecting", message)
    if outlook.progress.is_complete:
        message = "Every wanted replica runs and is ready."
        if outlook.progress.num_wanted == 0:
            message = "No replica is wanted, and none runs."
        return Condition("Progressing", "True", "Complete", message)
    return Condition("Progressing", "True", *_activity(outlook))


def _judge_memory(outlook: Outlook) -> Condition | None:
    if outlook.memory.status is None:
        return None
    verdict = judge_memory(outlook.memory.status, outlook.situation.service.device)
    status: Status = "True" if verdict.is_as_planned else "False"
    return Condition("MemoryAsPlanned", status, verdict.reason, verdict.message)


def _judge_availability(outlook: Outlook) -> Condition:
    progress = outlook.progress
    if progress.num_ready > 0:
        message = f"Replicas that serve: {progress.num_ready}, wanted: {progress.num_wanted}."
        return Condition("Available", "True", "ReplicasReady", message)
    is_unwanted = progress.num_wanted == 0 and not outlook.num_held_back
    if outlook.revision is not None and is_unwanted:
        return Condition("Available", "False", "ScaledToZero", "No replica is wanted.")
    return Condition("Available", "False", "NoReplicaReady", "No replica serves.")


def _judge_ready(outlook: Outlook) -> Condition:
    if outlook.is_ready and outlook.progress.num_wanted == 0:
        return Condition("Ready", "True", "ScaledToZero", "No replica is wanted, and none runs.")
    if outlook.is_ready:
        wanted = outlook.progress.num_wanted
        message = f"{wanted} of {wanted} replicas of this generation serve."
        return Condition("Ready", "True", "AllReplicasReady", message)
    if outlook.cause is not None:
        return failed("Ready", outlook.cause)
    if outlook.is_held_back:
        return Condition("Ready", "False", PENDING, outlook.admission.message)
    if not outlook.is_current:
        return Condition("Ready", "False", "Inspecting", "The model's headers are being read.")
    return Condition("Ready", "False", *_activity(outlook))


def _judge_activity(outlook: Outlook, ready: Condition) -> Condition | None:
    """For kstatus: Stalled where a person is needed, Reconciling where it may get there."""
    if ready.status == "True":
        return None
    cause = outlook.cause
    needs_person = cause is not None and not cause.is_transient
    kind = "Stalled" if needs_person or outlook.is_overdue else "Reconciling"
    return Condition(kind, "True", ready.reason, ready.message)


def _judge_contest(outlook: Outlook) -> Condition | None:
    if outlook.headcount.contest is None:
        return None
    message = describe_contest(outlook.situation.service)
    return Condition(CONTEST, "True", "ScalesDeployment", message)


def _activity(outlook: Outlook) -> tuple[str, str]:
    """A reason and a sentence while nothing is wrong."""
    progress = outlook.progress
    if outlook.rollout.explanation:
        return REPLACING, f"{outlook.rollout.explanation}: {_count(progress)}."
    if progress.num_ready == 0 and progress.num_wanted > 0:
        return "Starting", f"{_count(progress)}."
    return "RollingOut" if progress.num_outdated else "Scaling", f"{_count(progress)}."


def _count(progress: Progress) -> str:
    wanted = "replica is" if progress.num_wanted == 1 else "replicas are"
    return (
        f"{progress.num_wanted} {wanted} wanted, pods of this generation: {progress.num_updated}, "
        f"ready pods: {progress.num_ready}"
    )
