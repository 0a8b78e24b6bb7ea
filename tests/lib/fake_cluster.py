"""An API server in a dictionary, in the place of `forebay_operator.cluster.Cluster`.

It keeps uids, resource versions, owners and subresources as a real one does. Watchers are told of
each change at once, or not at all while `is_silent`.
"""

import copy
from collections.abc import Callable
from typing import Any

from forebay_operator.cluster import ApiError, Keep, Listing, whole
from forebay_operator.kinds import Kind
from forebay_operator.observed import Object

Watcher = Callable[[str, Object], object]


class FakeCluster:
    """Objects by kind, namespace and name, and a record of every request."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Verb, kind and name, in order; a subresource follows its kind after a slash."""
        self.refusals: dict[tuple[str, str], Exception] = {}
        """What a verb on a kind is answered with instead."""
        self.watchers: list[Watcher] = []
        self.is_silent = False
        self._version = 100
        self._num_uids = 0

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """The requests that were no reads."""
        return [one for one in self.requests if one[0] not in ("get", "list")]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._record("get", kind, name)
        return copy.deepcopy(self.objects.get((kind.name, namespace, name)))

    async def list(
        self, kind: Kind, namespace: str | None, field_selector: str = "", keep: Keep = whole
    ) -> Listing:
        self._record("list", kind, field_selector)
        found = [
            keep(copy.deepcopy(item))
            for (name, space, _), item in self.objects.items()
            if name == kind.name and namespace in (None, space)
        ]
        return Listing(kind, tuple(found), self._version)

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        metadata = manifest["metadata"]
        name = f"{kind.name}/{subresource}" if subresource else kind.name
        self._record("apply", kind, metadata["name"], name)
        place = (kind.name, metadata.get("namespace", ""), metadata["name"])
        known = self.objects.get(place)
        if known is None:
            if subresource:
                raise ApiError(404, "not found")
            return self.add(manifest)
        if metadata.get("uid", known["metadata"]["uid"]) != known["metadata"]["uid"]:
            raise ApiError(409, "the uid is another one")
        parts = ("status",) if subresource else tuple(set(manifest) - {"metadata"})
        changed = {**known, **{part: copy.deepcopy(manifest[part]) for part in parts}}
        if not subresource:
            changed["metadata"] = {**known["metadata"], **copy.deepcopy(metadata)}
        return self._store(place, changed)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self._record("merge", kind, name)
        known = self.objects.get((kind.name, namespace, name))
        if known is None:
            raise ApiError(404, f"{name} not found")
        return self._store((kind.name, namespace, name), _merged(known, patch))

    async def create(self, kind: Kind, manifest: Object) -> Object:
        metadata = dict(manifest["metadata"])
        if "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{self._num_uids}"
        self._record("create", kind, metadata["name"])
        if (kind.name, metadata["namespace"], metadata["name"]) in self.objects:
            raise ApiError(409, f"{metadata['name']} already exists")
        return self.add({**manifest, "metadata": metadata})

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        metadata = manifest["metadata"]
        self._record("replace", kind, metadata["name"])
        place = (kind.name, metadata["namespace"], metadata["name"])
        known = self.objects.get(place)
        if known is None:
            raise ApiError(404, f"{metadata['name']} not found")
        if metadata["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        return self._store(place, {**known, **copy.deepcopy(dict(manifest))})

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, version: str = ""
    ) -> None:
        self._record("delete", kind, name)
        known = self.objects.get((kind.name, namespace, name))
        if known is None or version not in ("", known["metadata"]["resourceVersion"]):
            return
        if known["metadata"]["uid"] == uid:
            self.remove(kind, namespace, name)

    def add(self, manifest: Object) -> dict[str, Any]:
        """Have an object there, with a uid and a creation time of its own."""
        self._num_uids += 1
        item = copy.deepcopy(dict(manifest))
        born = {"uid": f"uid-{self._num_uids}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        item["metadata"] = {**born, **item["metadata"]}
        metadata = item["metadata"]
        place = (item["kind"], metadata.get("namespace", ""), metadata["name"])
        return self._store(place, item, "ADDED")

    def change(self, kind: Kind, namespace: str, name: str, patch: Object) -> None:
        """Have somebody else change an object."""
        place = (kind.name, namespace, name)
        self._store(place, _merged(self.objects[place], patch))

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Have an object go."""
        gone = self.objects.pop((kind.name, namespace, name))
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", gone)

    def _record(self, verb: str, kind: Kind, name: str, kind_name: str = "") -> None:
        self.requests.append((verb, kind_name or kind.name, name))
        refusal = self.refusals.get((verb, kind_name or kind.name))
        if refusal is not None:
            raise refusal

    def _store(
        self, place: tuple[str, str, str], item: dict[str, Any], event: str = "MODIFIED"
    ) -> dict[str, Any]:
        known = self.objects.get(place)
        if known != item:
            self._version += 1
            item["metadata"] = {**item["metadata"], "resourceVersion": str(self._version)}
            self.objects[place] = item
            self._tell(event, item)
        return copy.deepcopy(item)

    def _tell(self, event: str, item: Object) -> None:
        if not self.is_silent:
            for watcher in self.watchers:
                watcher(event, copy.deepcopy(item))


def _merged(known: Any, patch: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(known)
    for name, part in patch.items():
        if part is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(known.get(name), part)
    return merged
