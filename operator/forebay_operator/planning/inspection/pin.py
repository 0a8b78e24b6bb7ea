"""Whether a model's uri always means the same model, and which uri would.

A hub's branch is resolved to a commit, at which pods load it as well. A tag of an image is resolved
by each node for itself, so only a digest keeps pods at what was inspected.
"""

import re

from forebay_operator.observed import Object
from forebay_operator.planning.children.inspection_job import CONTAINER
from forebay_operator.planning.children.model_source import model_argument
from forebay_operator.planning.pods import container_status
from forebay_operator.service import Model

_FIELDS = {"model": "spec.model.uri", "draft": "spec.engine.speculative.model"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def find_pinned_uri(model: Model, revision: str, pod: Object | None) -> str:
    """The uri that means just what was inspected; empty where nobody told.

    pod is the one that inspected it: a kubelet with ImageVolumeWithDigest says what it mounted.
    """
    if model.scheme == "hf":
        return model_argument(model, revision)
    if model.scheme != "oci":
        return ""
    if digest := _DIGEST.search(model.location) or _mounted_digest(pod, model):
        return f"oci://{repository_of(model.location)}@{digest[0]}"
    return ""


def warn_of_tag(model: Model, pinned_uri: str) -> str:
    """A sentence where an image is named by a tag; empty otherwise."""
    if model.scheme != "oci" or "@sha256:" in model.location:
        return ""
    tag = model.location.removeprefix(repository_of(model.location)).lstrip(":") or "latest"
    example = pinned_uri or f"oci://{repository_of(model.location)}@sha256:…"
    return (
        f"The tag {tag} may mean another image tomorrow, which pods would load although this one "
        f"was sized; set {_FIELDS[model.role]} to {example} to keep it."
    )


def _mounted_digest(pod: Object | None, model: Model) -> re.Match[str] | None:
    mounts = (container_status(pod, CONTAINER) if pod else {}).get("volumeMounts") or ()
    for mount in mounts:
        image = (mount.get("volumeStatus") or {}).get("image") or {}
        if mount.get("name") == model.role:
            return _DIGEST.search(image.get("imageRef", ""))
    return None


def repository_of(image: str) -> str:
    """An image without its tag or digest; a registry's port stays."""
    name = image.partition("@")[0]
    before, separator, tag = name.rpartition(":")
    return before if separator and "/" not in tag else name
