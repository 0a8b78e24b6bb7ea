"""The Deployment that runs a pinned template."""

from forebay_operator.planning.metadata import build_metadata, selector_labels
from forebay_operator.planning.nudge import Nudge
from forebay_operator.planning.rollout import Pace
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

MOST_REPLICA_SETS = 3
_ROLLING = {
    "Surge": {"maxSurge": 1, "maxUnavailable": 0},
    "Replace": {"maxSurge": 0, "maxUnavailable": 1},
}


def build_deployment(
    service: Service, template: Manifest, num_replicas: int, pace: Pace, nudge: Nudge
) -> Manifest:
    """Pods of one template, rolled at one pace."""
    metadata = build_metadata(service, service.name)
    if nudge.annotations:
        metadata["annotations"] = nudge.annotations
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
