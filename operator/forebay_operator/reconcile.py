"""One service at a time: observe, plan, apply. Safe to run at any time, any number of times."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from forebay_operator.apply import Applier, Refused, is_left_behind
from forebay_operator.cluster import FAILURES, ApiError, Cluster
from forebay_operator.events import (
    READ_SELDOM_SECONDS,
    SETTLING_SECONDS,
    WarningReader,
    post_notes,
    suspect_since,
)
from forebay_operator.kinds import DEPLOYMENT, INFERENCE_SERVICE, POD, RESOURCE_QUOTA
from forebay_operator.loads.scrape import Scraper
from forebay_operator.memory import Memory
from forebay_operator.objects import uid_of
from forebay_operator.observe import (
    is_orphan,
    is_over_quota,
    list_unexplained,
    observe,
    select_loads,
)
from forebay_operator.observed import Key, Object, Observed, ScalingMemory, Settings
from forebay_operator.planned import Plan
from forebay_operator.planning.pods import is_ready
from forebay_operator.planning.standstill import tell_internal_error
from forebay_operator.planning.status_pace import patience_seconds
from forebay_operator.quotas import QuotaKeeper
from forebay_operator.shared_lists import READ_AGAIN_SECONDS, SharedLists
from forebay_operator.store import Store
from forebay_operator.wall_clock import JumpWatch, shift
from forebay_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

BLIND_SECONDS = 5.0
"""How long a write of ours may take to come back before it is asked for."""
LEFT_BEHIND_SECONDS = 2.0
FOREIGN_SECONDS = 15.0
TERMINATING_SECONDS = 60.0

Planner = Callable[[Observed, datetime], Plan]


def is_shrinking(observed: Observed, decided: Plan) -> bool:
    """Whether a Deployment is about to lose pods, so that it matters what each holds now."""
    wanted = [one["spec"] for one in decided.children if one["kind"] == DEPLOYMENT.name]
    if observed.deployment is None or not wanted:
        return False
    return bool(wanted[0].get("replicas", 1) < observed.deployment["spec"].get("replicas", 1))


def names_newly_draining(observed: Observed, decided: Plan) -> bool:
    """Whether the status is about to say for the first time what a leaving pod holds.

    What the pod said last may be half a minute old, from before it was called to go.
    """
    known = (observed.service.get("status") or {}).get("draining") or ()
    named = (decided.status or {}).get("draining") or ()
    return not {one["pod"] for one in named} <= {one["pod"] for one in known}


def has_unheard(observed: Observed) -> bool:
    """Whether a pod became ready of which nothing is known: what it runs on, and its memory."""
    return any(is_ready(pod) and uid_of(pod) not in observed.loads for pod in observed.pods)


def needs_loads(observed: Observed, decided: Plan) -> bool:
    """Whether pods must be asked before this is done, and told."""
    return (
        is_shrinking(observed, decided)
        or names_newly_draining(observed, decided)
        or has_unheard(observed)
    )


class Reconciler:
    """Brings services' children to what their specs ask for."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        queue: WorkQueue,
        settings: Settings,
        planner: Planner,
        scraper: Scraper,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue
        self._settings = settings
        self._planner = planner
        self._scraper = scraper
        self._warnings = WarningReader(cluster)
        self._quotas = QuotaKeeper(cluster, store, queue)
        self._resource_quotas = SharedLists(cluster, RESOURCE_QUOTA)
        self._memories: dict[Key, Memory] = {}
        self._started_at = datetime.now(UTC)
        self._jumps = JumpWatch()

    def follow_clock(self, now: datetime) -> None:
        """Move what is remembered along where the wall clock was set."""
        jump = self._jumps.look(now)
        if not jump:
            return
        log.warning("Wall clock was set seconds=%.0f", jump.total_seconds())
        self._started_at += jump
        for memory in self._memories.values():
            memory.scaling = shift(memory.scaling, jump)

    async def reconcile(self, key: Key, now: datetime) -> Plan | None:
        """Bring one service's children to what its spec asks for; None if nothing was due.

        Where the key is that of a namespace's quotas, their ledger is kept instead.
        """
        if key.is_of_quotas:
            await self._quotas.keep(key.namespace, now)
            return Plan()
        memory = self._memory_of(key)
        if memory is None or not await self._has_caught_up(key, memory):
            return None
        observed = await self._observe(key, memory, now)
        if observed is None:
            return None
        applier = Applier(self._cluster, self._store, key, memory)
        decided = self._planner(observed, now)
        try:
            foreign = await applier.find_foreign(decided.children)
        except Refused as refusal:
            await self._tell_refusal(applier, memory, observed, refusal, now)
            raise
        if is_left_behind(key, foreign):
            self._queue.add_later(key, LEFT_BEHIND_SECONDS)
            return None
        if foreign:
            self._queue.add_later(key, FOREIGN_SECONDS)
        if foreign or applier.has_found:
            known = self._read(key, memory) or observed
            orphans = tuple(name for name, item in foreign.items() if is_orphan(item, key))
            observed = replace(known, foreign=tuple(foreign), orphans=orphans)
            decided = self._planner(observed, now)
        if needs_loads(observed, decided):
            await self._scraper.refresh(key)
            observed = replace(observed, loads=select_loads(observed.pods, self._scraper.loads))
            decided = self._planner(observed, now)
        return await self._carry_out(applier, memory, observed, decided, now)

    async def _carry_out(
        self, applier: Applier, memory: Memory, observed: Observed, decided: Plan, now: datetime
    ) -> Plan:
        """Write children first, and last the status, which speaks of what was written."""
        try:
            await applier.apply_deletion_costs(decided.deletion_costs)
            await applier.apply_children(decided.children, observed.foreign)
            await applier.delete(decided.deletions)
        except Refused as refusal:
            await self._tell_refusal(applier, memory, observed, refusal, now)
            if refusal.is_namespace_terminating:
                self._queue.add_later(observed.key, TERMINATING_SECONDS)
                return decided
            raise
        finally:
            memory.written_at = time.monotonic()
        await self._tell(applier, memory, observed, decided)
        if decided.look_again_seconds is not None:
            self._queue.add_later(observed.key, decided.look_again_seconds)
        return decided

    async def _tell_refusal(
        self, applier: Applier, memory: Memory, observed: Observed, refusal: Refused, now: datetime
    ) -> None:
        refused = replace(observed, apply_error=refusal.sentence)
        await self._tell(applier, memory, observed, self._planner(refused, now))

    async def admit(self, key: Key, error: Exception) -> None:
        """Say on the object that the operator itself failed, so that nobody waits in vain."""
        service = self._store.find(INFERENCE_SERVICE, key.namespace, key.name)
        memory = self._memory_of(key)
        if service is None or memory is None:
            return
        status = tell_internal_error(service, error, datetime.now(UTC))
        try:
            await Applier(self._cluster, self._store, key, memory).apply_status(service, status)
        except FAILURES as failure:
            log.warning("Failure was not told service=%s error=%r", key, failure)

    async def _tell(
        self, applier: Applier, memory: Memory, observed: Observed, decided: Plan
    ) -> None:
        if decided.memory is not None:
            memory.scaling = decided.memory
        if decided.status is not None and not self._may_wait(
            applier, memory, observed, decided.status
        ):
            try:
                await applier.apply_status(observed.service, decided.status)
            except ApiError as error:
                if error.status not in (404, 409):  # the service is gone, or is another one by now
                    raise
        await post_notes(self._cluster, observed.service, decided.notes, memory, time.monotonic())

    def _may_wait(
        self, applier: Applier, memory: Memory, observed: Observed, status: Object
    ) -> bool:
        """Whether a status that is not told yet has time; then it is looked at again."""
        now, stored = time.monotonic(), observed.service.get("status") or {}
        since = memory.untold_since or now
        remaining = since + patience_seconds(stored, status) - now
        if remaining <= 0 or applier.is_told(observed.service, status):
            memory.untold_since = None
            return False
        memory.untold_since = since
        self._queue.add_later(observed.key, remaining)
        return True

    def _read(self, key: Key, memory: Memory) -> Observed | None:
        return observe(self._store, key, self._settings, memory, self._scraper.loads)

    async def _observe(self, key: Key, memory: Memory, now: datetime) -> Observed | None:
        observed = self._read(key, memory)
        if observed is None or observed.service["metadata"].get("deletionTimestamp"):
            return None
        unexplained = list_unexplained(observed) - memory.asked_for
        if unexplained:
            for pod in (await self._cluster.list(POD, key.namespace)).objects:
                self._store.put(pod)
            memory.asked_for |= unexplained
            observed = self._read(key, memory) or observed
        observed = await self._with_resource_quotas(observed)
        return await self._with_warnings(observed, memory, now)

    async def _with_resource_quotas(self, observed: Observed) -> Observed:
        """Look at the quotas for as long as one refuses pods: no event tells that it grew."""
        if not is_over_quota(observed):
            return observed
        self._queue.add_later(observed.key, READ_AGAIN_SECONDS)
        try:
            quotas = await self._resource_quotas.read(observed.key.namespace)
        except ApiError as error:
            if error.status != 403:
                raise
            return observed
        return replace(observed, resource_quotas=quotas)

    async def _with_warnings(self, observed: Observed, memory: Memory, now: datetime) -> Observed:
        """Ask what others warn of while a child is incomplete, ever less often as time passes."""
        since = suspect_since(observed)
        if since is None:
            memory.warnings = ()
            return observed
        age = (now - since).total_seconds()
        if age < SETTLING_SECONDS:
            self._queue.add_later(observed.key, SETTLING_SECONDS - age)
        else:
            memory.warnings = await self._warnings.read(observed)
            again = min(max(READ_AGAIN_SECONDS, age / 4), READ_SELDOM_SECONDS)
            self._queue.add_later(observed.key, again)
        return replace(observed, warnings=memory.warnings)

    def _memory_of(self, key: Key) -> Memory | None:
        service = self._store.find(INFERENCE_SERVICE, key.namespace, key.name)
        if service is None:
            self._memories.pop(key, None)
            self._queue.forget(key)
            return None
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid_of(service):
            memory = Memory(uid_of(service), ScalingMemory(self._started_at))
            self._memories[key] = memory
        return memory

    async def _has_caught_up(self, key: Key, memory: Memory) -> bool:
        """Whether the store has seen our last writes; after a while they are asked for instead."""
        memory.written = [one for one in memory.written if not self._store.has_seen(one)]
        age = time.monotonic() - memory.written_at
        if memory.written and age < BLIND_SECONDS:
            self._queue.add_later(key, BLIND_SECONDS - age)
            return False
        for one in memory.written:
            item = await self._cluster.get(one.kind, one.namespace, one.name)
            if item is None or uid_of(item) != one.uid:
                known = self._store.find(one.kind, one.namespace, one.name)
                if known is not None and uid_of(known) == one.uid:
                    self._store.drop(known)
                self._store.bury(one.uid)
            if item is not None:
                self._store.put(item)
        memory.written = []
        return True
