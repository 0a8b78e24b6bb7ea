"""References to observed children, guarded by their uid."""

from forebay_operator.observed import Object
from forebay_operator.planned import ObjectRef

_KINDS = {"Job": "batch/v1", "ControllerRevision": "apps/v1"}


def reference_to(thing: Object, kind: str = "Job") -> ObjectRef:
    """Name an observed object; lists leave kind and apiVersion out, so the kind is told."""
    metadata = thing["metadata"]
    return ObjectRef(_KINDS[kind], kind, metadata["name"], metadata.get("uid", ""))
