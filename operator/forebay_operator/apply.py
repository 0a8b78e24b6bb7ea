"""Carry a Plan out: children, deletions, deletion costs and the status, each only where it differs.

Every write is recorded in the service's Memory, so that no decision is taken before the store has
seen it. Nothing here decides; whose an object is, is looked at before it is touched for the first
time.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from forebay_operator.applied import check, content_of, digest_of, remember, stamp
from forebay_operator.cluster import FAILURES, ApiError, Cluster
from forebay_operator.kinds import DELETION_COST, INFERENCE_SERVICE, POD, Kind, find_kind
from forebay_operator.memory import Memory
from forebay_operator.objects import service_of, uid_of, version_of
from forebay_operator.observe import is_owned
from forebay_operator.observed import Key, Object
from forebay_operator.planned import ObjectRef
from forebay_operator.store import Store, Written
from forebay_operator.undeclared import apply_status

log = logging.getLogger(__name__)

PASSING = frozenset({401, 409, 429, 500, 502, 503, 504})
"""Answers that say nothing about the child: the server is busy, or a namesake just came."""
MOST_PASSING = 4
"""So often in a row, what should have passed has not: a webhook that is down, for one."""


class Refused(Exception):
    """The API server refused a child; `sentence` says which and why."""

    def __init__(self, sentence: str, is_namespace_terminating: bool) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.is_namespace_terminating = is_namespace_terminating


def is_left_behind(key: Key, foreign: Mapping[str, Object]) -> bool:
    """Whether a namesake of this service that was deleted still has children to clean up."""
    return any(service_of(item) == key.name for item in foreign.values())


class Applier:
    """Writes for one service, with what is remembered about it."""

    def __init__(self, cluster: Cluster, store: Store, key: Key, memory: Memory) -> None:
        self._cluster = cluster
        self._store = store
        self._key = key
        self._memory = memory
        self.has_found = False
        """Whether a child was there that no watch shows: somebody took its label away."""

    async def find_foreign(self, children: Iterable[Object]) -> dict[str, Object]:
        """Objects of someone else that have a child's name, by `Kind/name`."""
        foreign = {}
        for manifest in children:
            kind, name = _kind_of(manifest), manifest["metadata"]["name"]
            with self._refusing(kind, name):
                known = await self._find(kind, name)
            if known is not None and not is_owned(known, self._memory.uid):
                foreign[f"{kind.name}/{name}"] = known
        return foreign

    async def apply_children(
        self, children: Iterable[Object], foreign: Collection[str] = ()
    ) -> None:
        """Apply every child that differs, in order; Refused at the first that is not taken."""
        for manifest in children:
            kind, name = _kind_of(manifest), manifest["metadata"]["name"]
            if f"{kind.name}/{name}" in foreign or self._is_applied(kind, manifest):
                continue
            with self._refusing(kind, name):
                await self._apply_child(kind, manifest)
            self._memory.num_passing = 0

    async def apply_deletion_costs(self, costs: Iterable[tuple[str, int]]) -> None:
        """Tell the ReplicaSet controller which pods to spare; a hint, so a lost one is no error."""
        for name, cost in costs:
            pod = self._store.find(POD, self._key.namespace, name)
            if pod is None or _annotation(pod, DELETION_COST) == str(cost):
                continue
            patch = {"metadata": {"uid": uid_of(pod), "annotations": {DELETION_COST: str(cost)}}}
            try:
                written = await self._cluster.merge(POD, self._key.namespace, name, patch)
            except FAILURES as error:
                log.info("Deletion cost was not written pod=%s error=%s", name, error)
            else:
                self._expect(POD, written)

    async def delete(self, references: Iterable[ObjectRef]) -> None:
        """Delete children that are no longer wanted, each only if it is still the one that was
        meant."""
        for one in references:
            kind, namespace = find_kind(one.api_version, one.kind), self._key.namespace
            known = self._store.find(kind, namespace, one.name)
            if known is not None and known["metadata"].get("deletionTimestamp"):
                continue
            with self._refusing(kind, one.name):
                await self._cluster.delete(kind, namespace, one.name, one.uid, one.version)
            self._memory.applied.pop((one.kind, one.name), None)
            self._memory.written.append(Written(kind, namespace, one.name, one.uid, None))

    def is_told(self, service: Object, status: Object) -> bool:
        """Whether a status is what is there, or what the API server made of it."""
        stored = service.get("status") or {}
        return status == stored or self._memory.told == (digest_of(status), digest_of(stored))

    async def apply_status(self, service: Object, status: Object) -> None:
        """Write the whole status if it is not what is there."""
        if self.is_told(service, status):
            return
        metadata = service["metadata"]
        names = ("name", "namespace", "uid")
        manifest = {
            "apiVersion": INFERENCE_SERVICE.api_version,
            "kind": INFERENCE_SERVICE.name,
            "metadata": {name: metadata[name] for name in names},
            "status": status,
        }
        written = await apply_status(self._cluster, INFERENCE_SERVICE, manifest)
        self._memory.told = digest_of(status), digest_of(written.get("status") or {})
        self._expect(INFERENCE_SERVICE, written)

    @contextmanager
    def _refusing(self, kind: Kind, name: str) -> Iterator[None]:
        """Turn what the API server refuses for good into a sentence about the child."""
        try:
            yield
        except (ApiError, TimeoutError) as error:
            if self._may_pass(error):
                raise
            raise _refusal(f"{kind.name} {name}", error) from error

    def _may_pass(self, error: ApiError | TimeoutError) -> bool:
        """Whether this is best tried again without a word."""
        if isinstance(error, ApiError) and error.status not in PASSING:
            return False
        self._memory.num_passing += 1
        return self._memory.num_passing < MOST_PASSING

    async def _apply_child(self, kind: Kind, manifest: Object) -> None:
        name = manifest["metadata"]["name"]
        known = self._store.find(kind, self._key.namespace, name)
        guarded = stamp(manifest)
        if known is not None:
            guarded = {**guarded, "metadata": {**guarded["metadata"], "uid": uid_of(known)}}
        written = await self._cluster.apply(kind, guarded)
        self._memory.applied[kind.name, name] = remember(manifest, written)
        if known is None or content_of(known) != content_of(written):
            log.info("Applied child service=%s kind=%s name=%s", self._key, kind.name, name)
        self._expect(kind, written)

    def _is_applied(self, kind: Kind, manifest: Object) -> bool:
        """Whether this manifest was applied to this object, and nobody changed the object since."""
        place = kind.name, manifest["metadata"]["name"]
        known = self._store.find(kind, self._key.namespace, place[1])
        applied = self._memory.applied.get(place)
        found = None if known is None else check(manifest, known, applied)
        if found is not None:
            self._memory.applied[place] = found
        return found is not None

    async def _find(self, kind: Kind, name: str) -> Object | None:
        """From the store; by a request where the store has nothing, which need not mean much."""
        known = self._store.find(kind, self._key.namespace, name)
        if known is None:
            known = await self._cluster.get(kind, self._key.namespace, name)
            if known is not None and is_owned(known, self._memory.uid):
                self._store.put(known)
                self.has_found = True
        return known

    def _expect(self, kind: Kind, written: Object) -> None:
        metadata = written["metadata"]
        place = metadata.get("namespace", ""), metadata["name"]
        self._memory.written.append(Written(kind, *place, uid_of(written), version_of(written)))


def _refusal(child: str, error: ApiError | TimeoutError) -> Refused:
    if isinstance(error, ApiError):
        sentence = f"{child} was refused: {error.message}"
        return Refused(sentence, error.is_namespace_terminating)
    return Refused(f"{child} was not answered in time", is_namespace_terminating=False)


def _kind_of(manifest: Object) -> Kind:
    return find_kind(manifest["apiVersion"], manifest["kind"])


def _annotation(item: Object, name: str) -> str | None:
    annotations: Mapping[str, str] = item["metadata"].get("annotations") or {}
    return annotations.get(name)
