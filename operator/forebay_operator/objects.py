"""What any object of the API says of itself: where it is, which one, and whose."""

from forebay_operator.kinds import INFERENCE_SERVICE, INSPECTION_LABEL, SERVICE_LABEL
from forebay_operator.observed import Key, Object

Place = tuple[str, str]
"""Namespace and name; the namespace is empty for what has none."""


def place_of(item: Object) -> Place:
    """Where an object is."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def uid_of(item: Object) -> str:
    """What tells an object from its namesakes of other times."""
    return str(item["metadata"]["uid"])


def version_of(item: Object) -> int:
    """An object's resource version; a higher one is newer."""
    return int(item["metadata"]["resourceVersion"])


def controller_of(item: Object) -> Object:
    """The owner reference of the object that controls this one; empty where none does."""
    references = item["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller")), {})


def service_of(item: Object) -> str:
    """The name of the InferenceService that controls an object; empty where none does.

    Several projects have a kind of that name: only the group tells them apart.
    """
    controller = controller_of(item)
    group = str(controller.get("apiVersion", "")).partition("/")[0]
    is_service = (group, controller.get("kind")) == (
        INFERENCE_SERVICE.group,
        INFERENCE_SERVICE.name,
    )
    return str(controller["name"]) if is_service else ""


def owner_of(item: Object) -> Key | None:
    """The service that an object speaks of: by its controller, else by its labels."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    if item["kind"] == INFERENCE_SERVICE.name:
        return Key(namespace, metadata["name"])
    labels = metadata.get("labels") or {}
    name = service_of(item) or labels.get(SERVICE_LABEL) or labels.get(INSPECTION_LABEL)
    return Key(namespace, name) if name else None
