"""What serves beside the pinned template: account, Service, Deployment and disruption budget."""

from typing import Literal

from forebay_operator.planning.children.metadata import (
    build_metadata,
    selector_labels,
    service_account_name,
)
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

MOST_REPLICA_SETS = 3

Pace = Literal["Surge", "Replace", "Restart"]
"""How a template reaches the pods: with one pod more, with one less, or all at once."""
_ROLLING: dict[Pace, dict[str, int | str]] = {
    "Surge": {"maxSurge": 1, "maxUnavailable": 0},
    "Replace": {"maxSurge": 0, "maxUnavailable": 1},
    "Restart": {"maxSurge": 0, "maxUnavailable": "100%"},
}


def build_service_account(service: Service) -> Manifest:
    """An account of its own, so that nobody's rights for `default` reach the pods."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": build_metadata(service, service_account_name(service)),
        "automountServiceAccountToken": False,
    }


def build_network_service(service: Service) -> Manifest:
    """Port 80 of every ready pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(service, service.name),
        "spec": {
            "type": "ClusterIP",
            "selector": selector_labels(service),
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def service_url(service: Service) -> str:
    """The base address for OpenAI clients inside the cluster."""
    return f"http://{service.name}.{service.namespace}.svc/v1"


def build_disruption_budget(service: Service, num_successors: int) -> Manifest:
    """Nobody who asks before evicting takes two pods at once.

    One may always go, even the only one: it drains, while a budget that lets none go stops every
    upgrade of a node. A pod that is not ready serves nobody, so it may always go, too.
    Successors that start early are counted as wanted, and must not protect whom they replace.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(service, service.name),
        "spec": {
            "maxUnavailable": 1 + num_successors,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector_labels(service)},
        },
    }


def build_deployment(
    service: Service, template: Manifest, num_replicas: int, pace: Pace, annotations: Manifest
) -> Manifest:
    """Pods of one template, rolled at one pace."""
    metadata = build_metadata(service, service.name)
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": num_replicas,
            "selector": {"matchLabels": selector_labels(service)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": dict(_ROLLING[pace])},
            "progressDeadlineSeconds": service.rollout.progress_deadline_seconds,
            "revisionHistoryLimit": MOST_REPLICA_SETS,
            "template": template,
        },
    }
