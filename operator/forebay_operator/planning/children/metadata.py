"""Names, labels and ownership of children."""

import hashlib
import json
from typing import Any

from forebay_operator.kinds import INFERENCE_SERVICE, MANAGED_LABEL, SERVICE_LABEL, Kind
from forebay_operator.observed import Object
from forebay_operator.planned import ObjectRef
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service


def build_metadata(service: Service, name: str, labels: dict[str, str] | None = None) -> Manifest:
    """Metadata of a child: ours by label, the InferenceService's by controller reference.

    Labels default to the serving label, which an inspection Job must not carry.
    """
    return {
        "name": name,
        "namespace": service.namespace,
        "labels": MANAGED_LABEL | (labels or selector_labels(service)),
        "ownerReferences": [
            {
                "apiVersion": INFERENCE_SERVICE.api_version,
                "kind": INFERENCE_SERVICE.name,
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


def reference_to(thing: Object, kind: Kind) -> ObjectRef:
    """Name an observed child, guarded by its uid."""
    metadata = thing["metadata"]
    return ObjectRef(kind.api_version, kind.name, metadata["name"], metadata.get("uid", ""))


def fingerprint(content: Any, num_digits: int) -> str:
    """Hex digits that are equal for equal JSON contents, whatever the order of their keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:num_digits]
