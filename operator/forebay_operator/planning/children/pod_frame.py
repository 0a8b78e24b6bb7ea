"""What inspecting and serving pods share: they may do nothing, and go where the spec says.

They pass the `restricted` Pod Security Standard.
"""

from forebay_operator.planning.children.metadata import service_account_name
from forebay_operator.planning.nodes.placement import list_tolerations
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

USER_ID = 65532


def build_confinement(service: Service) -> Manifest:
    """A pod's account without a token, no root, and the runtime's default seccomp profile."""
    return {
        "serviceAccountName": service_account_name(service),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def build_container_security() -> Manifest:
    """A container's security context: nothing to gain, nothing to write outside its volumes."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def build_placement(service: Service) -> Manifest:
    """Where a pod may run and with which secrets it pulls."""
    template = service.pod_template
    placement = {
        "nodeSelector": dict(template.node_selector),
        "tolerations": list_tolerations(service),
        "imagePullSecrets": [dict(secret) for secret in template.image_pull_secrets],
    }
    return {key: value for key, value in placement.items() if value}
