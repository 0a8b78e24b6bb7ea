"""The last known state of every object that concerns a service, indexed by the service that owns
it.

Watches and lists feed it, `observe` reads it. It never goes back: an older version of an object is
ignored, and so is an object that was seen deleted (a list may be older than the watch that runs
beside it). A watch by label also calls an object deleted that lost the label; such a one returns
with a version that is not older.
"""

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field

from forebay_operator.cluster import Listing
from forebay_operator.kinds import (
    DEPLOYMENT,
    INFERENCE_SERVICE,
    POD,
    SURROUNDINGS,
    VRAM_QUOTA,
    Kind,
)
from forebay_operator.objects import Place, owner_of, place_of, uid_of, version_of
from forebay_operator.observed import Key, Object
from forebay_operator.quota_entries import concerned
from forebay_operator.trim import trim

MAX_TOMBSTONES = 50_000
COUNTED = (INFERENCE_SERVICE.name, DEPLOYMENT.name)
"""What a VRAMQuota counts."""

_SURROUNDINGS = frozenset(kind.name for kind in SURROUNDINGS)

Keys = tuple[Key, ...]


@dataclass(frozen=True)
class Written:
    """What a write of ours left behind: the store must have seen it before the next decision."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    resource_version: int | None
    """None: it was deleted."""


@dataclass
class Difference:
    """How far the store is behind a full list."""

    newer: list[Object] = field(default_factory=list)
    ghosts: list[Object] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.newer or self.ghosts)


class Store:
    """Objects by kind and place, and by owner."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Place, Object]] = defaultdict(dict)
        self._owned: dict[Key, dict[tuple[str, Place], Object]] = {}
        self._tombstones: OrderedDict[str, int | None] = OrderedDict()
        self._touched: set[Key] = set()
        self.readable = frozenset(SURROUNDINGS)
        """Kinds of the whole cluster that may be read."""

    def put(self, item: Object) -> Keys:
        """Take a newer version in; the keys whose decision it may change, if anything is new."""
        kind, place = item["kind"], place_of(item)
        known = self._objects[kind].get(place)
        if self._is_buried(item):
            return ()
        if known is not None and version_of(known) >= version_of(item):
            return ()
        kept = trim(item)
        previous = self._remove(kind, place)
        self._objects[kind][place] = kept
        key = owner_of(kept)
        self._touch(kind, key)
        if key is not None:
            self._owned.setdefault(key, {})[kind, place] = kept
        if kind in _SURROUNDINGS:
            return () if known is not None and _says_the_same(known, kept) else self.keys()
        if kind == VRAM_QUOTA.name:
            return self._keys_under(known, kept)
        own = tuple(one for one in dict.fromkeys((key, previous)) if one is not None)
        return own + self._keys_beside(kind, place[0])

    def drop(self, item: Object) -> Keys:
        """Forget a deleted object for good; the keys whose decision that may change."""
        self.bury(uid_of(item), version_of(item))
        kind, place = item["kind"], place_of(item)
        known = self._objects[kind].get(place)
        if known is None or uid_of(known) != uid_of(item):
            return ()
        key = self._remove(kind, place)
        self._touch(kind, key)
        if kind in _SURROUNDINGS:
            return self.keys()
        if kind == VRAM_QUOTA.name:
            return self._keys_under(known, None)
        return (() if key is None else (key,)) + self._keys_beside(kind, place[0])

    def bury(self, uid: str, version: int | None = None) -> None:
        """Take no object of this uid in that is older than its end; none at all without one."""
        self._tombstones[uid] = version
        while len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object, whoever owns it."""
        return self._objects[kind.name].get((namespace, name))

    def children(self, key: Key, kind: Kind) -> tuple[Object, ...]:
        """A service's objects of one kind, oldest first."""
        owned = self._owned.get(key, {})
        return tuple(
            sorted((item for (name, _), item in owned.items() if name == kind.name), key=_age)
        )

    def keys(self) -> Keys:
        """Every InferenceService's key."""
        return tuple(Key(*place) for place in self._objects[INFERENCE_SERVICE.name])

    def services(self, namespace: str) -> tuple[Object, ...]:
        """A namespace's InferenceServices."""
        return self._in_namespace(INFERENCE_SERVICE, namespace)

    def quotas(self, namespace: str) -> tuple[Object, ...]:
        """A namespace's VRAMQuotas, by name."""
        found = self._in_namespace(VRAM_QUOTA, namespace)
        return tuple(sorted(found, key=lambda quota: str(quota["metadata"]["name"])))

    def keys_of_quotas(self) -> Keys:
        """The key of every namespace that has a budget."""
        namespaces = dict.fromkeys(namespace for namespace, _ in self._objects[VRAM_QUOTA.name])
        return tuple(Key(namespace, "") for namespace in namespaces)

    def surroundings(self, kind: Kind) -> tuple[Object, ...]:
        """Every object of a kind of the whole cluster, cut down to what sizing looks at."""
        return tuple(self._objects[kind.name].values())

    def take_touched(self) -> set[Key]:
        """Services that changed, or whose pods did, since this was asked last."""
        touched, self._touched = self._touched, set()
        return touched

    def has_seen(self, written: Written) -> bool:
        """Whether a write of ours has come back."""
        known = self.find(written.kind, written.namespace, written.name)
        if written.resource_version is None:
            is_gone = known is None or uid_of(known) != written.uid
            return is_gone or bool(known and known["metadata"].get("deletionTimestamp"))
        if written.uid in self._tombstones:
            return True
        if known is None:
            return False
        return uid_of(known) != written.uid or version_of(known) >= written.resource_version

    def shorten(self, item: Object) -> Object:
        """As much of a listed object as `difference` must see; one that is known costs nothing."""
        known = self._objects[item["kind"]].get(place_of(item))
        is_known = known is not None and uid_of(known) == uid_of(item)
        if known is not None and is_known and version_of(known) >= version_of(item):
            return known
        return trim(item)

    def newest_version(self, kind: Kind) -> int:
        """The highest resource version seen of objects that are still there; 0 without any."""
        return max(map(version_of, self._objects[kind.name].values()), default=0)

    def difference(self, listing: Listing, namespace: str | None = None) -> Difference:
        """What a full list holds that the store does not, and what the store holds that is gone."""
        behind = Difference()
        known = self._objects[listing.kind.name]
        listed = {uid_of(item) for item in listing.objects}
        for item in listing.objects:
            mine = known.get(place_of(item))
            is_newer = mine is None or version_of(mine) < version_of(item)
            if is_newer and not self._is_buried(item):
                behind.newer.append(item)
        for place, item in known.items():
            is_old = version_of(item) <= listing.resource_version
            if namespace in (None, place[0]) and is_old and uid_of(item) not in listed:
                behind.ghosts.append(item)
        return behind

    def _in_namespace(self, kind: Kind, namespace: str) -> tuple[Object, ...]:
        known = self._objects[kind.name]
        return tuple(item for place, item in known.items() if place[0] == namespace)

    def _keys_beside(self, kind: str, namespace: str) -> Keys:
        """The namespace's budget, which counts its services and what they are set to."""
        has_budget = kind in COUNTED and bool(self.quotas(namespace))
        return (Key(namespace, ""),) if has_budget else ()

    def _keys_under(self, before: Object | None, after: Object | None) -> Keys:
        """The budget itself, and the services to which a change of it may matter."""
        namespace = str((before or after or {})["metadata"]["namespace"])
        services = (Key(namespace, raw["metadata"]["name"]) for raw in self.services(namespace))
        if before is not None and after is not None and before["spec"] == after["spec"]:
            names = concerned(before, after)
            services = (key for key in services if key.name in names)
        return (Key(namespace, ""), *services)

    def _is_buried(self, item: Object) -> bool:
        """An object's end has a version of its own, which no state of its life reaches."""
        if uid_of(item) not in self._tombstones:
            return False
        end = self._tombstones[uid_of(item)]
        return end is None or version_of(item) < end

    def _touch(self, kind: str, key: Key | None) -> None:
        if key is not None and kind in (POD.name, INFERENCE_SERVICE.name):
            self._touched.add(key)

    def _remove(self, kind: str, place: Place) -> Key | None:
        known = self._objects[kind].pop(place, None)
        key = None if known is None else owner_of(known)
        if key is not None and key in self._owned:
            self._owned[key].pop((kind, place), None)
            if not self._owned[key]:
                del self._owned[key]
        return key


def _age(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["name"]


def _says_the_same(known: Object, kept: Object) -> bool:
    """A heartbeat changes nothing that a decision looks at."""
    is_same = all(known.get(part) == kept.get(part) for part in ("spec", "status"))
    return is_same and bool(known["metadata"].get("labels") == kept["metadata"].get("labels"))
