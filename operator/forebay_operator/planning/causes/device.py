"""A service that asked for GPUs and computes on a CPU: it answers, a hundred times too slowly."""

from forebay_operator.objects import uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.pods import is_ready, pod_name, template_hash
from forebay_operator.planning.situation import Situation

RUNS_ON_CPU = "RunsOnCPU"


def explain_cpu(situation: Situation, wanted_hash: str) -> Cause | None:
    """The oldest ready pod of the template that says it runs on a CPU, where GPUs were asked for.

    What a pod said stands while nothing is heard of it: a restarted operator, or a missed answer,
    calls nothing ready that was not.
    """
    if situation.service.device != "GPU":
        return None
    pods = [
        pod
        for pod in situation.observed.pods
        if is_ready(pod) and template_hash(pod) == wanted_hash
    ]
    devices = {pod_name(pod): _device(situation, pod) for pod in pods}
    found = next((pod for pod in pods if devices[pod_name(pod)] == "cpu"), None)
    if found is not None:
        return Cause(RUNS_ON_CPU, _sentence(found, situation))
    ready = situation.previous_condition("Ready")
    is_unheard = any(device is None for device in devices.values())
    if is_unheard and ready.get("reason") == RUNS_ON_CPU:
        return Cause(RUNS_ON_CPU, ready["message"])
    return None


def _device(situation: Situation, pod: Object) -> str | None:
    """None where the pod has not answered; empty where it does not say."""
    load = situation.observed.loads.get(uid_of(pod))
    return load.device if load is not None and load.answered else None


def _sentence(pod: Object, situation: Situation) -> str:
    resource = situation.service.vram.gpu_resource
    node = pod["spec"].get("nodeName")
    where = f" on node {node}" if node else ""
    return (
        f"spec.device is GPU, but pod {pod_name(pod)}{where} computes on a CPU: its container got "
        f"{resource} and sees no GPU; check the node's driver and device plugin, set "
        "spec.podTemplate.runtimeClassName to the GPU's runtime class (often nvidia), or "
        "spec.runtimeVersion to an image that was built for this GPU."
    )
