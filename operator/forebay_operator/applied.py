"""Whether a child is still as it was applied, told without keeping the child or its manifest.

A digest of the manifest stands on the object itself, in an annotation, so that an operator that
starts anew knows what the last one applied, and writes nothing where nothing changed.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from forebay_operator.objects import uid_of, version_of
from forebay_operator.observed import Object

ANNOTATION = "forebay.dev/applied"

_BOOKKEEPING = ("resourceVersion", "managedFields", "generation")


@dataclass(frozen=True)
class Applied:
    """A child that was found in order."""

    manifest_digest: str
    uid: str
    resource_version: int
    content_digest: str
    """Of the object without its status and what every write changes."""


def stamp(manifest: Object) -> Object:
    """The manifest, to be written with its own digest."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: digest_of(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def remember(manifest: Object, found: Object) -> Applied:
    """What is kept about an object that is as its manifest wants it."""
    content = digest_of(content_of(found))
    return Applied(digest_of(manifest), uid_of(found), version_of(found), content)


def check(manifest: Object, found: Object, known: Applied | None) -> Applied | None:
    """What to keep about an object that is still as its manifest wants it; None if it is not.

    `known` is what was kept about it last: an object that did not change since is in order, however
    the API server writes what the manifest says. Of any other, its annotation and its fields tell.
    """
    digest = digest_of(manifest)
    if known is not None and (known.uid, known.manifest_digest) == (uid_of(found), digest):
        if known.resource_version >= version_of(found):
            return known
        if known.content_digest == digest_of(content_of(found)):
            return replace(known, resource_version=version_of(found))
    annotations = found["metadata"].get("annotations") or {}
    is_same = annotations.get(ANNOTATION) == digest and holds(found, manifest)
    return remember(manifest, found) if is_same else None


def holds(found: Any, wanted: Any) -> bool:
    """Whether everything that a manifest says stands in an object, whatever else does."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            holds(found.get(name), part) for name, part in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        is_list = isinstance(found, list) and len(found) == len(wanted)
        return is_list and all(map(holds, found, wanted))
    return bool(found == wanted)


def content_of(item: Object) -> dict[str, Any]:
    """What a manifest can decide about an object: everything but its status and bookkeeping."""
    metadata = {name: text for name, text in item["metadata"].items() if name not in _BOOKKEEPING}
    return {**{name: part for name, part in item.items() if name != "status"}, "metadata": metadata}


def digest_of(part: Object) -> str:
    """The same for equal parts, in this process and the next."""
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
