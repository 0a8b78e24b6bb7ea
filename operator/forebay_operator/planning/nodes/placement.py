"""Which nodes a service's pods may run on, and what keeps them off the others.

Room is no question here: a node whose GPUs are all taken counts, because they can become free.
"""

from forebay_operator.observed import Object
from forebay_operator.planning.nodes.selector import (
    labels_of,
    matches_any,
    read_required,
    tolerates,
)
from forebay_operator.service import Service

_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_OF_KUBERNETES = "node.kubernetes.io/"
"""Taints by which Kubernetes repeats what a node's conditions and its cordon say."""


def list_tolerations(service: Service) -> list[Object]:
    """The user's tolerations, and one for nodes that are kept for those who ask for GPUs.

    Such nodes are tainted with the resource's name; clusters with the admission plugin
    ExtendedResourceToleration add the same toleration.
    """
    tolerations = [dict(toleration) for toleration in service.pod_template.tolerations]
    dedicated = {"key": service.vram.gpu_resource, "operator": "Exists"}
    if service.device == "GPU" and dedicated not in tolerations:
        tolerations.append(dedicated)
    return list(tolerations)


def explain_exclusion(node: Object, service: Service) -> str:
    """What keeps the service's pods off a node, as the end of a sentence; empty if nothing does."""
    template = service.pod_template
    if not template.node_selector.items() <= labels_of(node).items():
        return "not picked by spec.podTemplate.nodeSelector"
    required = read_required(template.affinity)
    if required is not None and not matches_any(required, node):
        return "not picked by the node affinity in spec.podTemplate.affinity"
    return _explain_state(node, list_tolerations(service))


def _explain_state(node: Object, tolerations: list[Object]) -> str:
    if not _is_ready(node):
        return "not ready"
    spec = node.get("spec") or {}
    if spec.get("unschedulable") and not tolerates(tolerations, _CORDON):
        return "cordoned"
    for taint in spec.get("taints") or ():
        if taint["key"] != _CORDON["key"] and not tolerates(tolerations, taint):
            return _explain_taint(taint)
    return ""


def _explain_taint(taint: Object) -> str:
    if taint["key"].startswith(_OF_KUBERNETES):
        return f"tainted {taint['key']} by Kubernetes"
    value = f"={taint['value']}" if taint.get("value") else ""
    written = f"{taint['key']}{value}:{taint['effect']}"
    return f"tainted {written}, which spec.podTemplate.tolerations does not tolerate"


def _is_ready(node: Object) -> bool:
    """A node that has not said yet counts: it has only just come."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return all(one["status"] == "True" for one in conditions if one["type"] == "Ready")
