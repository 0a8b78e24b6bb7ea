"""Sentences for pods that no node takes: what was asked, and how much of it there is."""

import re
from collections.abc import Iterable

from forebay_budget.quantity import parse_quantity
from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.planning.causes.patient import Patient
from forebay_operator.planning.nodes.selector import may_run_on
from forebay_operator.planning.pods import RUNTIME_CONTAINER, pod_condition
from forebay_operator.service import Service

_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_PREEMPTION = re.compile(r"\s*(no new claims to deallocate,?)?\s*preemption:.*$", re.DOTALL)
_SHORT_OF = re.compile(r"\d+ Insufficient ([^\s,]+)")


def explain_scheduling(patient: Patient) -> Cause | None:
    """Turn the scheduler's sentence into a cause with the field to change."""
    scheduled = pod_condition(patient.pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    sentence = scheduled.get("message", "")
    if scheduled.get("reason") == "SchedulingGated":
        return _explain_gates(patient)
    if missing := _MISSING_CLAIM.search(sentence):
        return Cause(
            "VolumeClaimNotFound",
            f"PersistentVolumeClaim {missing[1]} does not exist in namespace "
            f"{patient.service.namespace}; create it, or correct "
            f"{_claim_field(missing[1], patient.service)}.",
        )
    said = trim(_PREEMPTION.sub("", sentence)) or "the scheduler gave no reason"
    if "unbound immediate PersistentVolumeClaims" in sentence:
        return Cause(
            "VolumeClaimUnbound",
            f"A PersistentVolumeClaim of pod {patient.name} is not bound to a volume ({said}); "
            "see kubectl describe pvc.",
        )
    return Cause("Unschedulable", _explain_room(patient, said))


def could_run_on(pod: Object, node: Object) -> bool:
    """Whether a pod may use a node, and would fit on it if nothing else were there."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    return may_run_on(pod["spec"], node) and all(
        _amount(amount) <= _amount(str(offered.get(name, "0")))
        for name, amount in _asked(pod).items()
    )


def _explain_gates(patient: Patient) -> Cause:
    gates = (one["name"] for one in patient.pod["spec"].get("schedulingGates") or ())
    return Cause(
        "SchedulingGated",
        f"Pod {patient.name} is held back by the scheduling gates {', '.join(gates)}; whoever set "
        "them, as a queue for jobs does, takes them away.",
    )


def _explain_room(patient: Patient, said: str) -> str:
    asked = _asked(patient.pod)
    asks = ", ".join(f"{name} {amount}" for name, amount in asked.items())
    supply = [
        _describe_supply(name, asked[name], patient)
        for name in dict.fromkeys(_SHORT_OF.findall(said))
        if name in asked and patient.situation.observed.nodes_readable
    ]
    return (
        f"No node takes pod {patient.name}, which asks for {asks or 'nothing in particular'}: "
        f"{'; '.join([said, *supply])}; add or free such a node, or change "
        f"{_fields(patient)}."
    )


def _describe_supply(resource: str, asked: str, patient: Patient) -> str:
    """How many nodes have the resource, how much each, and whether that could be enough."""
    offers = list(_offers(resource, patient))
    if not offers:
        return f"no node that it may use offers {resource}"
    verb = "node that it may use offers" if len(offers) == 1 else "nodes that it may use offer"
    most = max(offers, key=_amount)
    told = f"{len(offers)} {verb} {resource}"
    if _amount(most) < _amount(asked):
        return f"{told}, but at most {most} each"
    total = sum(map(_amount, offers))
    in_all = f", {total} in all" if all(one.isdecimal() for one in offers) else ""
    return f"{told}{in_all}, at most {most} each, and too little of it is free"


def _offers(resource: str, patient: Patient) -> Iterable[str]:
    for node in patient.situation.observed.nodes:
        offered = str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0"))
        if _amount(offered) > 0 and may_run_on(patient.pod["spec"], node):
            yield offered


def _amount(quantity: str) -> float:
    """A number to compare by; CPU's thousandths count as that."""
    try:
        if quantity.endswith("m"):
            return int(quantity[:-1]) / 1000
        return parse_quantity(quantity)
    except ValueError:
        return 0


def _asked(pod: Object) -> dict[str, str]:
    """What the pod's containers request; the serving container alone has any of a kind."""
    return {
        name: str(amount)
        for container in pod["spec"].get("containers", ())
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items()
    }


def _claim_field(claim: str, service: Service) -> str:
    is_model = service.model.scheme == "pvc" and service.model.claim == claim
    return "spec.model.uri" if is_model else "spec.podTemplate.volumes"


def _fields(patient: Patient) -> str:
    if patient.container != RUNTIME_CONTAINER:
        return "spec.podTemplate"  # an inspection asks for the same little of every model
    if patient.service.device == "GPU":
        return "spec.vram, the parallel sizes of spec.engine, or spec.podTemplate"
    return "spec.vram.budget or spec.podTemplate"
