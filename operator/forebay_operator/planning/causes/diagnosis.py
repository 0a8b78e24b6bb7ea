"""Why a pod does not serve: pure checks over what the scheduler and the kubelet say of it.

Used for serving pods and for the inspection's pod. The first check that speaks decides, so their
order goes from a pod's birth on.
"""

from collections.abc import Callable
from dataclasses import dataclass

from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.planning.causes.images import IMAGE_REASONS, explain_image
from forebay_operator.planning.causes.scheduling import explain_unschedulable
from forebay_operator.planning.children.model_source import name_as_written
from forebay_operator.planning.pods import (
    container_spec,
    container_status,
    is_finished,
    is_ready,
    pod_condition,
    pod_name,
    uid_of,
)
from forebay_operator.planning.situation import Situation
from forebay_operator.planning.timestamps import parse_time, seconds_since
from forebay_operator.service import Service

NOT_READY_SECONDS = 10
"""A started pod that fails its readiness probe this long is worth a word."""


@dataclass(frozen=True)
class Patient:
    """A pod with what is known around it."""

    pod: Object
    container: str
    situation: Situation

    @property
    def service(self) -> Service:
        return self.situation.service

    @property
    def name(self) -> str:
        return pod_name(self.pod)

    @property
    def status(self) -> Object:
        return container_status(self.pod, self.container)

    @property
    def waiting(self) -> Object:
        waiting: Object = (self.status.get("state") or {}).get("waiting") or {}
        return waiting

    @property
    def ended(self) -> Object:
        """How its container ended, now or the last time before this one; empty if it never did."""
        state, last = self.status.get("state") or {}, self.status.get("lastState") or {}
        ended: Object = state.get("terminated") or last.get("terminated") or {}
        return ended

    def last_warning(self, *reasons: str) -> str:
        """What the newest warning of these reasons says."""
        warnings = self.situation.warnings_about(uid_of(self.pod))
        texts = [event.get("message", "") for event in warnings if event.get("reason") in reasons]
        return texts[-1] if texts else ""


def diagnose_pod(patient: Patient) -> Cause | None:
    """The first thing that keeps a pod from serving; None for one that serves or is on its way."""
    if is_ready(patient.pod):
        return None
    found = (check(patient) for check in _CHECKS)
    return next((cause for cause in found if cause is not None), None)


def seconds_until_ailing(patient: Patient) -> float | None:
    """When a pod that has just become unready has been so for long enough to be told."""
    ready = pod_condition(patient.pod, "Ready")
    if is_ready(patient.pod) or not patient.status.get("started"):
        return None
    if not ready.get("lastTransitionTime"):
        return None
    unready_seconds = seconds_since(ready["lastTransitionTime"], patient.situation.now)
    return max(0.0, NOT_READY_SECONDS - unready_seconds) or None


def _check_scheduling(patient: Patient) -> Cause | None:
    scheduled = pod_condition(patient.pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    return explain_unschedulable(patient.pod, scheduled.get("message", ""), patient.service)


def _check_images(patient: Patient) -> Cause | None:
    reason = patient.waiting.get("reason", "")
    if reason not in IMAGE_REASONS:
        return None
    says = patient.waiting.get("message", "")
    image = container_spec(patient.pod, patient.container).get("image", "")
    return explain_image(reason, says, patient.last_warning("Failed"), image, patient.service)


def _check_configuration(patient: Patient) -> Cause | None:
    reason = patient.waiting.get("reason", "")
    says = trim(patient.waiting.get("message", ""))
    if reason == "CreateContainerConfigError":
        return Cause(
            "ContainerConfigError",
            f"Pod {patient.name} cannot start: {says}; create what is missing, or correct the "
            "reference in spec.model.secretName or spec.podTemplate.env.",
        )
    if reason in ("CreateContainerError", "RunContainerError", "StartError"):
        return Cause("ContainerNotStarted", f"Pod {patient.name} cannot start: {says}.")
    return None


def _check_volumes(patient: Patient) -> Cause | None:
    if patient.waiting.get("reason", "ContainerCreating") != "ContainerCreating":
        return None
    if patient.status.get("state", {}).keys() & {"running", "terminated"}:
        return None
    if says := patient.last_warning("FailedMount", "FailedAttachVolume"):
        return Cause(
            "VolumeMountFailed", f"Pod {patient.name} cannot mount its volumes: {trim(says)}."
        )
    if says := patient.last_warning("FailedCreatePodSandBox"):
        return Cause("PodSandboxFailed", f"Pod {patient.name} got no sandbox: {trim(says)}.")
    return None


def _check_memory(patient: Patient) -> Cause | None:
    if patient.ended.get("reason") != "OOMKilled" or patient.status.get("started"):
        return None
    resources = container_spec(patient.pod, patient.container).get("resources") or {}
    limit = (resources.get("limits") or {}).get("memory")
    if limit is None:
        told = "because its node ran out of memory"
        knob = "set spec.podTemplate.resources.requests.memory so that it gets a node with enough"
    else:
        told = f"at its memory limit of {limit}"
        knob = f"raise {_memory_field(patient.service)}"
    return Cause(
        "OOMKilled",
        f"Container {patient.container} of pod {patient.name} was killed {told}; {knob}.",
    )


def _memory_field(service: Service) -> str:
    if "memory" in service.pod_template.limits:
        return "spec.podTemplate.resources.limits.memory"
    return "spec.vram.budget, which is the pod's memory limit on a CPU"


def _check_startup(patient: Patient) -> Cause | None:
    timeout = patient.service.startup_timeout_seconds
    if patient.status.get("started") or not _was_stopped_while_starting(patient, timeout):
        return None
    return Cause(
        "StartupTimedOut",
        f"Pod {patient.name} was not ready within spec.startup.timeoutSeconds ({timeout}) and is "
        f"restarted; raise it, or see why it is slow with kubectl logs --previous {patient.name}.",
    )


def _was_stopped_while_starting(patient: Patient, timeout: int) -> bool:
    """The kubelet does not say why it stopped a container, but the time that it ran does."""
    ended = patient.ended
    if not ended.get("startedAt") or not ended.get("finishedAt"):
        return False
    ran = parse_time(ended["finishedAt"]) - parse_time(ended["startedAt"])
    return ran.total_seconds() >= timeout


def _check_crashes(patient: Patient) -> Cause | None:
    if not patient.ended or patient.status.get("started"):
        return None
    if patient.ended.get("exitCode") == 0 and not patient.waiting:
        return None
    words = name_as_written(last_words(patient.ended.get("message", "")), patient.service.model)
    if not words:
        words = f"it left no last words, see kubectl logs --previous {patient.name}"
    return Cause(
        "ContainerCrashed",
        f"Container {patient.container} of pod {patient.name} exited with code "
        f"{patient.ended.get('exitCode')}: {words}.",
    )


def last_words(message: str) -> str:
    """The last line of a termination message, where a failing start names its cause."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return trim(lines[-1]) if lines else ""


def explain_taking(patient: Patient) -> Cause | None:
    """Why a node gave a pod up or never took it: evicted, preempted, shut down, not admitted.

    The kubelet names a reason only then; how the container fared on the way out says nothing.
    """
    status = patient.pod.get("status") or {}
    if not is_finished(patient.pod) or not status.get("reason"):
        return None
    says = trim(status.get("message", "")) or "its node gave no reason"
    return Cause(status["reason"], f"Pod {patient.name} was ended by its node: {says}.")


def _check_finished(patient: Patient) -> Cause | None:
    if not is_finished(patient.pod):
        return None
    status = patient.pod["status"]
    says = trim(status.get("message", "")) or f"phase {status['phase']}"
    return Cause("PodFailed", f"Pod {patient.name} ended: {says}.")


def _check_readiness(patient: Patient) -> Cause | None:
    if not patient.status.get("started") or seconds_until_ailing(patient) is not None:
        return None
    says = trim(patient.last_warning("Unhealthy")) or "its readiness probe fails"
    return Cause("NotReady", f"Pod {patient.name} started but is not ready: {says}.")


_CHECKS: tuple[Callable[[Patient], Cause | None], ...] = (
    explain_taking,
    _check_scheduling,
    _check_images,
    _check_configuration,
    _check_volumes,
    _check_memory,
    _check_startup,
    _check_crashes,
    _check_finished,
    _check_readiness,
)
