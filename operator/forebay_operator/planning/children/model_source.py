"""How a pod reaches the model, by a volume or from the hub: inspection and serving alike."""

import re

from forebay_operator.observed import Settings
from forebay_operator.planning.children.hub_trust import build_trust_env
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Model

TOKEN_KEY = "token"


def mount_path(model: Model) -> str:
    """Where a model that is a volume lies in a pod; the volume is called by the model's role."""
    return f"/{model.role}"


def build_model_volumes(model: Model) -> tuple[list[Manifest], list[Manifest]]:
    """The volume that holds the model and its mount; both empty for a model on a hub."""
    if model.scheme == "hf":
        return [], []
    mount: Manifest = {"name": model.role, "mountPath": mount_path(model), "readOnly": True}
    if model.scheme == "oci":
        return [{"name": model.role, "image": {"reference": model.location}}], [mount]
    # The whole claim, not a subPath of it: the kubelet would create a folder that is missing.
    claim = {"claimName": model.claim, "readOnly": True}
    return [{"name": model.role, "persistentVolumeClaim": claim}], [mount]


def model_argument(model: Model, revision: str = "") -> str:
    """The model as inspection and runtime take it; a hub's model at its resolved revision."""
    if model.scheme == "hf":
        repository, _, asked = model.location.partition("@")
        wanted = revision or asked
        return f"hf://{repository}@{wanted}" if wanted else model.uri
    path = model.claim_path if model.scheme == "pvc" else ""
    return f"{mount_path(model)}/{path}" if path else mount_path(model)


def name_as_written(text: str, model: Model) -> str:
    """Turn paths inside a pod back into the uri that its user wrote."""
    if model.scheme == "hf":
        return text
    root = f"pvc://{model.claim}" if model.scheme == "pvc" else model.uri
    return re.sub(rf"(?<![\w.-]){mount_path(model)}\b", lambda _: root, text)


def build_hub_env(model: Model, settings: Settings) -> list[Manifest]:
    """Variables by which a hub's model is found and read; empty for other models."""
    if model.scheme != "hf":
        return []
    env = build_trust_env(model, settings)
    if settings.hub_endpoint:
        env.append({"name": "HF_ENDPOINT", "value": settings.hub_endpoint})
    if model.secret_name:
        key = {"name": model.secret_name, "key": TOKEN_KEY}
        env.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}})
    return env
