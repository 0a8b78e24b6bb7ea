"""The Service that clients call."""

from forebay_operator.planning.metadata import build_metadata, selector_labels
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service


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
