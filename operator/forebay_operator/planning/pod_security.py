"""What our containers may not do: pods pass the `restricted` Pod Security Standard."""

from forebay_operator.planning.situation import Manifest

USER_ID = 65532


def build_pod_security() -> Manifest:
    """A pod's security context: no root, the runtime's default seccomp profile."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def build_container_security() -> Manifest:
    """A container's security context: nothing to gain, nothing to write outside its volumes."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
