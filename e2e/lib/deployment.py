"""Installing Forebay into a cluster, by the chart that its users install."""

import json

from helm import Helm
from home import REPOSITORY
from kubectl import Kubectl

NAMESPACE = "forebay-system"
RELEASE = "forebay"
OPERATOR = f"{RELEASE}-operator"
CHART = REPOSITORY / "charts/forebay"
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def deploy(kubectl: Kubectl, helm: Helm, operator_image: str, runtime_image: str) -> None:
    """Install or upgrade CRDs, RBAC and the operator, and wait until the operator answers."""
    metadata = {"name": NAMESPACE, "labels": _RESTRICTED}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))
    images = [*set_image("operator", operator_image), *set_image("runtime", runtime_image)]
    upgrade = ("upgrade", "--install", RELEASE, CHART, "--namespace", NAMESPACE)
    helm(*upgrade, *images, "--take-ownership", "--wait", "--timeout=120s")


def set_image(target: str, image: str) -> list[str]:
    """Return the flags that choose an image of the form REGISTRY/REPOSITORY:TAG."""
    name, _, tag = image.rpartition(":")
    registry, _, repository = name.rpartition("/")
    chosen = {"registry": registry, f"{target}.repository": repository, f"{target}.tag": tag}
    return [f"--set-string=image.{key}={value}" for key, value in chosen.items()]
