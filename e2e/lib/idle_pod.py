"""A pod that does nothing by itself: commands are run in it, as root."""

from cluster_api import Object


def build_idle_pod(name: str, image: str, node: str) -> Object:
    """Return a pod of one container on that node."""
    container = {
        "name": name,
        "image": image,
        "command": ["sleep", "infinity"],
        "securityContext": {"runAsUser": 0},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
