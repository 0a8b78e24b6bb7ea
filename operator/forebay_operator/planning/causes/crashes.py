"""Sentences for containers that ended: killed for memory, by a probe, or by their own fault."""

import re

from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.planning.causes.patient import Patient
from forebay_operator.planning.children.model_source import name_as_written
from forebay_operator.planning.pods import container_spec
from forebay_operator.planning.timestamps import parse_time
from forebay_operator.service import Service

_GPU_OUT_OF_MEMORY = re.compile(r"\b(CUDA|HIP|XPU)( error:)? out of memory", re.IGNORECASE)
_LIVENESS = "Liveness probe failed"
CRASHES_OF_A_LOOP = 2
"""From then on a person is asked for; the first may have been the hub, a node or bad luck."""


def explain_end(patient: Patient) -> Cause | None:
    """Why the container's last run ended; None while none did, or once the next one has started."""
    if not patient.ended or patient.has_started:
        return None
    found = (check(patient) for check in (_memory, _startup, _liveness, _refused_start, _crash))
    return next((cause for cause in found if cause is not None), None)


def last_words(message: str) -> str:
    """The last line of a termination message, where a failing start names its cause."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return trim(lines[-1]) if lines else ""


def _memory(patient: Patient) -> Cause | None:
    if patient.ended.get("reason") != "OOMKilled":
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
    if service.device == "GPU" or "memory" in service.pod_template.limits:
        return "spec.podTemplate.resources.limits.memory"
    return "spec.vram.budget, which is the pod's memory limit on a CPU"


def _startup(patient: Patient) -> Cause | None:
    """The kubelet does not say why it stopped a container, but the time that it ran does."""
    timeout = patient.service.startup_timeout_seconds
    if patient.has_served or _ran_seconds(patient) < timeout:
        return None
    return Cause(
        "StartupTimedOut",
        f"Pod {patient.name} was not ready within spec.startup.timeoutSeconds ({timeout}) and is "
        f"restarted; raise it, or see why it is slow with kubectl logs --previous {patient.name}.",
    )


def _ran_seconds(patient: Patient) -> float:
    ended = patient.ended
    if not ended.get("startedAt") or not ended.get("finishedAt"):
        return 0.0
    return (parse_time(ended["finishedAt"]) - parse_time(ended["startedAt"])).total_seconds()


def _liveness(patient: Patient) -> Cause | None:
    """A run that served and was ended by the kubelet; one that crashed has its own exit code."""
    says = patient.last_warning("Unhealthy", about=_LIVENESS)
    if not says or not patient.has_served or patient.ended.get("exitCode") not in (0, 137, 143):
        return None
    return Cause(
        "LivenessProbeFailed",
        f"Pod {patient.name} served and was restarted, because it stopped making progress "
        f"({trim(says)}); see kubectl logs --previous {patient.name}.",
    )


def _refused_start(patient: Patient) -> Cause | None:
    """The container's runtime could not even run its command: its sentence has no last line."""
    if patient.ended.get("reason") not in ("StartError", "ContainerCannotRun"):
        return None
    says = trim(patient.ended.get("message", "")) or "its node gave no reason"
    return Cause("ContainerNotStarted", f"Pod {patient.name} cannot start: {says}.")


def _crash(patient: Patient) -> Cause | None:
    if patient.ended.get("exitCode") == 0 and not patient.waiting:
        return None
    said = patient.ended.get("message", "")
    words = name_as_written(last_words(said), patient.service.model)
    where = f"Container {patient.container} of pod {patient.name}"
    if _GPU_OUT_OF_MEMORY.search(said):
        return Cause(
            "GPUOutOfMemory",
            f"{where} ran out of its GPU's memory: {words}; see that nothing else runs on that "
            "GPU, or lower spec.engine.gpuMemoryUtilization, maxNumSeqs or maxModelLen.",
        )
    if not words:
        words = f"it left no last words, see kubectl logs --previous {patient.name}"
    return Cause(
        "ContainerCrashed",
        f"{where} exited with code {patient.ended.get('exitCode')}: {words}.",
        may_pass=_count_crashes(patient) < CRASHES_OF_A_LOOP,
    )


def _count_crashes(patient: Patient) -> int:
    is_running = "running" in (patient.status.get("state") or {})
    return int(patient.status.get("restartCount", 0)) + (not is_running)
