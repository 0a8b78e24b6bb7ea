"""Why a pod does not serve: pure checks over what the scheduler and the kubelet say of it.

Used for serving pods and for the inspection's pod. The first check that speaks decides, so their
order goes from a pod's birth on.
"""

from collections.abc import Callable

from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.planning.causes.crashes import explain_end
from forebay_operator.planning.causes.images import IMAGE_REASONS, explain_image
from forebay_operator.planning.causes.patient import Patient, seconds_until_ailing
from forebay_operator.planning.causes.scheduling import explain_scheduling
from forebay_operator.planning.pods import container_spec, is_finished, is_ready
from forebay_operator.planning.situation import find_condition


def diagnose_pod(patient: Patient) -> Cause | None:
    """The first thing that keeps a pod from serving; None for one that serves or is on its way."""
    if is_ready(patient.pod):
        return None
    found = (check(patient) for check in _CHECKS)
    return next((cause for cause in found if cause is not None), None)


def explain_taking(patient: Patient) -> Cause | None:
    """Why a node gave a pod up or never took it: evicted, preempted, shut down, not admitted.

    The kubelet names a reason only then; how the container fared on the way out says nothing.
    """
    status = patient.pod.get("status") or {}
    if not is_finished(patient.pod) or not status.get("reason"):
        return None
    says = trim(status.get("message", "")) or "its node gave no reason"
    return Cause(status["reason"], f"Pod {patient.name} was ended by its node: {says}.")


def _check_node(patient: Patient) -> Cause | None:
    """A node that went silent reports nothing of its pods: what they said last is out of date."""
    name = (patient.pod.get("spec") or {}).get("nodeName")
    nodes = patient.situation.observed.nodes
    node = next((one for one in nodes if name and one["metadata"]["name"] == name), None)
    ready = find_condition(((node or {}).get("status") or {}).get("conditions"), "Ready")
    if ready.get("status", "True") == "True":
        return None
    return Cause(
        "NodeLost",
        f"Node {name} of pod {patient.name} is not ready; Kubernetes starts the pod elsewhere "
        "after five minutes, unless the node comes back.",
    )


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
    if reason in ("CreateContainerError", "RunContainerError", "StartError") and not patient.ended:
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


def _check_finished(patient: Patient) -> Cause | None:
    if not is_finished(patient.pod):
        return None
    status = patient.pod["status"]
    says = trim(status.get("message", "")) or f"phase {status['phase']}"
    return Cause("PodFailed", f"Pod {patient.name} ended: {says}.")


def _check_readiness(patient: Patient) -> Cause | None:
    if not patient.has_started or seconds_until_ailing(patient) is not None:
        return None
    says = trim(patient.last_warning("Unhealthy", about="Readiness")) or "its readiness probe fails"
    return Cause("NotReady", f"Pod {patient.name} started but is not ready: {says}.")


_CHECKS: tuple[Callable[[Patient], Cause | None], ...] = (
    explain_taking,
    explain_scheduling,
    _check_node,
    _check_images,
    _check_configuration,
    _check_volumes,
    explain_end,
    _check_finished,
    _check_readiness,
)
