"""Sentences for pods that no node takes."""

import re

from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.planning.pods import pod_name
from forebay_operator.service import Service

_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_PREEMPTION = re.compile(r"\s*(no new claims to deallocate,?)?\s*preemption:.*$", re.DOTALL)


def explain_unschedulable(pod: Object, sentence: str, service: Service) -> Cause:
    """Turn the scheduler's sentence into a cause with the field to change."""
    if missing := _MISSING_CLAIM.search(sentence):
        return Cause(
            "VolumeClaimNotFound",
            f"PersistentVolumeClaim {missing[1]} does not exist in namespace "
            f"{service.namespace}; create it, or correct {_claim_field(missing[1], service)}.",
        )
    said = trim(_PREEMPTION.sub("", sentence)) or "the scheduler gave no reason"
    if "unbound immediate PersistentVolumeClaims" in sentence:
        return Cause(
            "VolumeClaimUnbound",
            f"A PersistentVolumeClaim of pod {pod_name(pod)} is not bound to a volume ({said}); "
            "see kubectl describe pvc.",
        )
    return Cause(
        "Unschedulable",
        f"No node takes pod {pod_name(pod)}, which asks for {_asks(pod)}: {said}; add or free "
        f"such a node, or change {_fields(service)}.",
    )


def _claim_field(claim: str, service: Service) -> str:
    is_model = service.model.scheme == "pvc" and service.model.claim == claim
    return "spec.model.uri" if is_model else "spec.podTemplate.volumes"


def _asks(pod: Object) -> str:
    totals = [
        f"{name} {amount}"
        for container in pod["spec"].get("containers", ())
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items()
    ]
    return ", ".join(totals) or "nothing in particular"


def _fields(service: Service) -> str:
    if service.device == "GPU":
        return "spec.vram, spec.engine.tensorParallelSize or spec.podTemplate"
    return "spec.vram.budget or spec.podTemplate"
