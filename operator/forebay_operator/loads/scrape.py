"""Ask pods what they hold: `GET /load` by pod IP, often where a decision hangs on it, seldom
elsewhere.

What was seen is kept in memory; a service goes back on the queue when a pod says something that a
decision reads (`news`).
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from forebay_operator.kinds import INFERENCE_SERVICE, POD, SERVICE_LABEL
from forebay_operator.loads.news import is_news
from forebay_operator.loads.request import request_load
from forebay_operator.objects import uid_of
from forebay_operator.observed import DRAFT_TERMS, MEMORY_TERMS, Key, Object, PodLoad
from forebay_operator.store import Store
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

NO_ANSWERS = (
    TimeoutError,
    OSError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,  # JSON that is nested without end
)

FAST_SECONDS = 2.0
SLOW_SECONDS = 30.0
TIMEOUT_SECONDS = 1.5
MAX_CONNECTIONS = 256
MOST_COUNTED = 2**53
DEFAULT_PORT = 8000
DEVICES = ("cuda", "cpu")


@dataclass(frozen=True)
class Target:
    """One pod to ask."""

    key: Key
    uid: str
    host: str
    port: int


class Scraper:
    """Keeps the loads of all serving pods."""

    def __init__(self, store: Store, queue: WorkQueue, metrics: Metrics) -> None:
        self.loads: dict[str, PodLoad] = {}
        """By pod uid."""
        self._store = store
        self._queue = queue
        self._metrics = metrics
        self.beat: Callable[[], None] = lambda: None
        """Called once a round."""
        self._asked_at: dict[str, float] = {}
        """Monotonic time by pod uid."""
        self._due_at: dict[Key, float] = {}
        """When a service's pods are looked at next."""
        self._uids: dict[Key, set[str]] = {}
        """Of a service's pods, when they were looked at last."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self.beat()
            await self._ask(self.due_targets(time.monotonic()))
            await asyncio.sleep(FAST_SECONDS)

    async def refresh(self, key: Key) -> None:
        """Ask one service's pods now: a decision hangs on it, or a sentence of the status."""
        pods = self._store.children(key, POD)
        await self._ask(self._targets(key, pods, time.monotonic(), period=0))

    def due_targets(self, now: float) -> Iterator[Target]:
        """The pods whose turn it is; what is known of pods that are gone is forgotten."""
        for key in self._store.take_touched():
            self._due_at[key] = now
        for key in [key for key, at in self._due_at.items() if at <= now]:
            yield from self._look(key, now)

    def _look(self, key: Key, now: float) -> Iterator[Target]:
        service = self._store.find(INFERENCE_SERVICE, key.namespace, key.name)
        pods = () if service is None else self._store.children(key, POD)
        uids = {uid_of(pod) for pod in pods}
        for uid in self._uids.pop(key, set()) - uids:
            self._asked_at.pop(uid, None)
            self.loads.pop(uid, None)
        if service is None:
            del self._due_at[key]
            return
        is_fast = service["spec"].get("scaling") or any(map(_is_leaving, pods))
        period = FAST_SECONDS if is_fast else SLOW_SECONDS
        self._uids[key] = uids
        # A tick comes a little early or late; half a tick of grace keeps the pace.
        self._due_at[key] = now + period - FAST_SECONDS / 2
        yield from self._targets(key, pods, now, period)

    def _targets(
        self, key: Key, pods: Iterable[Object], now: float, period: float
    ) -> Iterator[Target]:
        for pod in pods:
            target = to_target(key, pod)
            if target is None:  # what it said before is over
                self.loads.pop(uid_of(pod), None)
                continue
            if now - self._asked_at.get(target.uid, float("-inf")) < period - FAST_SECONDS / 2:
                continue
            self._asked_at[target.uid] = now
            yield target

    def note(self, target: Target, load: PodLoad) -> None:
        """Keep what a pod said, and have its service looked at if that is news."""
        before = self.loads.get(target.uid)
        self.loads[target.uid] = load
        if is_news(before, load):
            self._queue.add(target.key)

    async def _ask(self, targets: Iterable[Target]) -> None:
        waiting = list(targets)

        async def ask() -> None:
            # A pod's time runs from its turn on: silent pods cost others no answers.
            while waiting:
                target = waiting.pop()
                load = await read_load(target)
                self._metrics.count_scrape(load.answered)
                if target.uid in self._asked_at:  # else it has gone in the meantime
                    self.note(target, load)

        await asyncio.gather(*(ask() for _ in waiting[:MAX_CONNECTIONS]))


def to_target(key: Key, pod: Object) -> Target | None:
    """Where to ask a pod; None for one that cannot answer yet, or no more, or serves nothing."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if SERVICE_LABEL not in (metadata.get("labels") or {}) or not status.get("podIP"):
        return None
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    is_serving = conditions.get("Ready") == "True" or metadata.get("deletionTimestamp")
    if status.get("phase") != "Running" or not is_serving:
        return None
    return Target(key, uid_of(pod), status["podIP"], _port(pod))


def parse_load(said: Object) -> PodLoad:
    """Read `GET /load`'s answer; KeyError, TypeError or ValueError if it is none.

    Four numbers must be there. What younger runtimes add may be missing, and where it is not
    understood, it is as if it were.
    """
    return PodLoad(
        answered=True,
        num_running=_count(said["running"]),
        num_waiting=_count(said["waiting"]),
        kv_cache_usage=_share(said["kvCacheUsage"]),
        free_kv_tokens=_count(said["freeKvTokens"]),
        device=_device(said.get("device")),
        gpu_utilization=_share_or_none(said.get("gpuUtilization")),
        memory_bytes=_memory(said.get("memoryBytes")),
    )


def _count(said: object) -> int:
    if not isinstance(said, int) or not 0 <= said <= MOST_COUNTED:
        raise ValueError(f"{said!r} is no count")
    return said


def _share(said: object) -> float:
    if not isinstance(said, int | float) or not 0 <= said <= 1:
        raise ValueError(f"{said!r} is no share")
    return float(said)


def _device(said: object) -> str:
    return said if isinstance(said, str) and said in DEVICES else ""


def _share_or_none(said: object) -> float | None:
    try:
        return _share(said)
    except ValueError:
        return None


def _memory(said: object) -> dict[str, int]:
    """All terms or nothing: a sum of some would be called less than was planned."""
    if not isinstance(said, dict):
        return {}
    terms = (*MEMORY_TERMS, *(term for term in DRAFT_TERMS if term in said))
    try:
        return {term: _count(said[term]) for term in terms}
    except (KeyError, ValueError):
        return {}


async def read_load(target: Target) -> PodLoad:
    """Ask one pod; whatever is no answer counts as none."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return parse_load(json.loads(await request_load(target.host, target.port)))
    except NO_ANSWERS as error:
        log.debug("Pod did not say its load service=%s error=%r", target.key, error)
        return PodLoad(answered=False)


def _is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _port(pod: Object) -> int:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == "http":
                return int(port["containerPort"])
    return DEFAULT_PORT
