"""Names, labels and ownership of children."""

from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

API_VERSION = "forebay.dev/v1alpha1"
KIND = "InferenceService"
MANAGED_BY = {"app.kubernetes.io/managed-by": "forebay"}
SERVICE_LABEL = "forebay.dev/inference-service"
INSPECTION_LABEL = "forebay.dev/inspection-of"
TEMPLATE_HASH_LABEL = "forebay.dev/template-hash"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def build_metadata(service: Service, name: str, labels: dict[str, str] | None = None) -> Manifest:
    """Metadata of a child: ours by label, the InferenceService's by controller reference.

    Labels default to the serving label, which an inspection Job must not carry.
    """
    return {
        "name": name,
        "namespace": service.namespace,
        "labels": MANAGED_BY | (labels or selector_labels(service)),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": service.name,
                "uid": service.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


def service_account_name(service: Service) -> str:
    """The name of the account that its pods run under."""
    return f"{service.name}-forebay"


def selector_labels(service: Service) -> dict[str, str]:
    """What the Service and the Deployment select pods by; it may never change."""
    return {SERVICE_LABEL: service.name}
