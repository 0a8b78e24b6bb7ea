"""The Job that reads a model's headers in the service's namespace."""

from forebay_operator.kinds import INSPECTED_LABEL, INSPECTION_LABEL, MANAGED_LABEL
from forebay_operator.observed import Settings
from forebay_operator.planning.children.hub_trust import build_hub_trust
from forebay_operator.planning.children.metadata import build_metadata, fingerprint
from forebay_operator.planning.children.model_source import (
    build_hub_env,
    build_model_volumes,
    model_argument,
)
from forebay_operator.planning.children.pod_frame import (
    build_confinement,
    build_container_security,
    build_placement,
)
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

CONTAINER = "inspect"
MEMORY_LIMIT = "512Mi"
TERMINATION_LOG = "/dev/termination-log"
FINISHED_JOB_SECONDS = 900
"""How long a finished Job can be read, by an operator that was down or by a person."""
MOST_NAME_CHARS = 63
"""Of a Job: its pods carry its name as a label. The fingerprint tells shortened names apart."""
_TMP = "forebay-tmp"


def build_inspection_job(service: Service, settings: Settings) -> Manifest:
    """The Job for one model; its name changes with whatever may change what it finds."""
    labels = {INSPECTION_LABEL: service.name}
    if service.model.role != "model":
        labels[INSPECTED_LABEL] = service.model.role
    template = {
        "metadata": {"labels": MANAGED_LABEL | labels},
        "spec": _build_pod(service, settings),
    }
    suffix = f"-inspect-{fingerprint([service.model.uri, template], 8)}"
    name = service.name[: MOST_NAME_CHARS - len(suffix)] + suffix
    metadata = build_metadata(service, name, labels)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": max(60, service.startup_timeout_seconds),
            "ttlSecondsAfterFinished": FINISHED_JOB_SECONDS,
            "template": template,
        },
    }


def _build_pod(service: Service, settings: Settings) -> Manifest:
    model_volumes, _ = build_model_volumes(service.model)
    placement = build_placement(service)
    if not model_volumes:
        # A hub's model is read from any node, others where the pods will run.
        placement = {key: placement[key] for key in placement if key == "imagePullSecrets"}
    hub_volumes, _ = build_hub_trust(service.model, settings)
    return {
        "restartPolicy": "Never",
        "containers": [_build_container(service, settings)],
        "volumes": [{"name": _TMP, "emptyDir": {}}, *model_volumes, *hub_volumes],
        **build_confinement(service),
        **placement,
    }


def _build_container(service: Service, settings: Settings) -> Manifest:
    _, model_mounts = build_model_volumes(service.model)
    _, hub_mounts = build_hub_trust(service.model, settings)
    return {
        "name": CONTAINER,
        "image": settings.operator_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["python", "-m", "forebay_budget"],
        "args": [
            "inspect",
            model_argument(service.model),
            "--termination-message",
            TERMINATION_LOG,
        ],
        "env": [{"name": "HOME", "value": "/tmp"}, *build_hub_env(service.model, settings)],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": MEMORY_LIMIT},
        },
        "securityContext": build_container_security(),
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _TMP, "mountPath": "/tmp"}, *model_mounts, *hub_mounts],
    }
