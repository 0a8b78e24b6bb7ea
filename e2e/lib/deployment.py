"""Installing Forebay into a cluster, from the same files that a user's `kubectl apply -k` takes."""

import json
import os
from pathlib import Path
from typing import Any

from home import HOME, REPOSITORY
from kubectl import Kubectl

NAMESPACE = "forebay-system"
OPERATOR = "forebay-operator"
BASE = REPOSITORY / "charts/forebay/base"


def deploy(kubectl: Kubectl, operator_image: str, runtime_image: str) -> None:
    """Apply CRD, RBAC and the operator with these images, and wait until the operator answers."""
    overlay = HOME / "deploy"
    overlay.mkdir(parents=True, exist_ok=True)
    kustomization = build_overlay(os.path.relpath(BASE, overlay), operator_image, runtime_image)
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization, indent=1))
    apply = ("apply", "--server-side", "--force-conflicts")
    kubectl(*apply, "-f", REPOSITORY / "crds")
    kubectl(*apply, "-k", overlay)
    kubectl("wait", "--for=condition=Established", "crd/inferenceservices.forebay.dev")
    kubectl("rollout", "status", f"deployment/{OPERATOR}", "-n", NAMESPACE, "--timeout=120s")


def build_overlay(base: str | Path, operator_image: str, runtime_image: str) -> dict[str, Any]:
    """Return a kustomization of the base that runs these images."""
    environment = {
        "FOREBAY_OPERATOR_IMAGE": operator_image,
        "FOREBAY_RUNTIME_IMAGE": runtime_image,
    }
    container = {
        "name": "operator",
        "image": operator_image,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": NAMESPACE},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    return {"resources": [str(base)], "patches": [{"patch": json.dumps(deployment)}]}
