"""The container that serves: its command line, resources, probes and environment."""

from collections.abc import Iterable

from forebay_budget.quantity import to_quantity
from forebay_budget.sizing import Fit
from forebay_operator.observed import Object, Settings
from forebay_operator.planning.engine_flags import PORT, build_arguments
from forebay_operator.planning.model_source import build_hub_env
from forebay_operator.planning.pod_security import build_container_security
from forebay_operator.planning.pods import RUNTIME_CONTAINER
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

CACHE_PATH = "/cache"
CPU_REQUEST = "100m"


def build_runtime_container(
    service: Service, fit: Fit, image: str, model_revision: str, settings: Settings
) -> Manifest:
    """The container without its volume mounts."""
    return {
        "name": RUNTIME_CONTAINER,
        "image": image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["forebay"],
        "args": build_arguments(service, fit, model_revision),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "env": _build_env(service, settings),
        "resources": build_resources(service, fit),
        "securityContext": build_container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_build_probes(service),
    }


def build_resources(service: Service, fit: Fit) -> Manifest:
    """The plan's memory (CPU) or GPUs, under what the user says; the CPU request is small."""
    limits: dict[str, str] = {}
    if fit.device == "GPU":
        limits[service.vram.gpu_resource] = str(fit.tensor_parallel_size)
    else:
        limits["memory"] = to_quantity(fit.budget_bytes)
    limits |= dict(service.pod_template.limits)
    requests = {"cpu": CPU_REQUEST} | limits | dict(service.pod_template.requests)
    return {"limits": limits, "requests": requests}


def _build_probes(service: Service) -> Manifest:
    """Each second, so that a pod serves as soon as it can; once started it may miss a few."""
    return {
        "startupProbe": {
            "httpGet": {"path": "/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": service.startup_timeout_seconds,
        },
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
    }


def _build_env(service: Service, settings: Settings) -> list[Object]:
    """The user's variables win over ours, but never over the hub and its token."""
    ours: list[Object] = [{"name": "HOME", "value": "/tmp"}]
    if service.model.scheme == "hf":
        ours.append({"name": "HF_HOME", "value": CACHE_PATH})
    return _merge_by_name(ours, service.pod_template.env, build_hub_env(service.model, settings))


def _merge_by_name(*groups: Iterable[Object]) -> list[Object]:
    merged = {variable["name"]: dict(variable) for group in groups for variable in group}
    return list(merged.values())
