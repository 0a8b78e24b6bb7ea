"""Events, both ways: the warnings of others that explain why something hangs, and our own notes.

Warnings are listed on demand, for one namespace and only while something is unsettled: watching
every Event of a cluster would cost more than everything else.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from forebay_operator.cluster import FAILURES, Cluster
from forebay_operator.kinds import EVENT, EVENT_RECORD
from forebay_operator.memory import Memory
from forebay_operator.objects import uid_of
from forebay_operator.observed import Object, Observed
from forebay_operator.planned import Note
from forebay_operator.shared_lists import SharedLists

log = logging.getLogger(__name__)

SETTLING_SECONDS = 4.0
"""How long an object may be incomplete before anyone asks why."""
READ_SELDOM_SECONDS = 60.0
POST_AGAIN_SECONDS = 3600.0
MAX_NOTE_CHARACTERS = 1000
"""The API server takes 1,024."""


def suspect_since(observed: Observed) -> datetime | None:
    """Since when the service's oldest incomplete child exists; None if all are complete."""
    return min((_created(item) for item in _unsettled(observed)), default=None)


class WarningReader:
    """Reads Warning Events, once for all services of a namespace that ask within seconds."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = SharedLists(cluster, EVENT, "type=Warning", clock)

    async def read(self, observed: Observed) -> tuple[Object, ...]:
        """Warnings about the service's pods, Jobs and ReplicaSets, oldest first."""
        groups = (observed.pods, observed.job_pods, observed.jobs, observed.replica_sets)
        uids = {uid_of(item) for group in groups for item in group}
        events = await self._events.read(observed.key.namespace)
        mine = [one for one in events if one.get("involvedObject", {}).get("uid") in uids]
        return tuple(sorted(mine, key=_seen_at))


async def post_notes(
    cluster: Cluster, service: Object, notes: Iterable[Note], memory: Memory, now: float
) -> None:
    """Post each note as an Event once an hour; an Event that is not taken is no error."""
    for note in notes:
        said = (note.type, note.reason, note.message)
        if now - memory.posted.get(said, float("-inf")) < POST_AGAIN_SECONDS:
            continue
        memory.posted[said] = now
        try:
            await cluster.create(EVENT_RECORD, build_event(service, note, datetime.now(UTC)))
        except FAILURES as error:
            log.info("Event was not posted reason=%s error=%s", note.reason, error)
    stale = [said for said, at in memory.posted.items() if now - at >= POST_AGAIN_SECONDS]
    for said in stale:
        del memory.posted[said]


def build_event(service: Object, note: Note, now: datetime) -> Object:
    """The Event that tells a note about a service."""
    metadata = service["metadata"]
    regarding = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {
        "apiVersion": EVENT_RECORD.api_version,
        "kind": EVENT_RECORD.name,
        "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "forebay.dev/operator",
        "reportingInstance": "forebay-operator",
        "action": "Reconcile",
        "type": note.type,
        "reason": note.reason,
        "note": note.message[:MAX_NOTE_CHARACTERS],
        "regarding": {
            "apiVersion": service["apiVersion"],
            "kind": service["kind"],
            **regarding,
        },
    }


def _unsettled(observed: Observed) -> Iterator[Object]:
    """Pods that do not run or ail, Jobs without a pod, ReplicaSets that lack pods."""
    for pod in (*observed.pods, *observed.job_pods):
        if not pod["metadata"].get("deletionTimestamp") and (_is_pending(pod) or _ails(pod)):
            yield pod
    for job in observed.jobs:
        status = job.get("status") or {}
        if not observed.job_pods and not status.get("succeeded") and not status.get("failed"):
            yield job
    for one in observed.replica_sets:
        if (one.get("status") or {}).get("replicas", 0) < one["spec"].get("replicas", 1):
            yield one


def _is_pending(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase", "Pending") == "Pending")


def _ails(pod: Object) -> bool:
    """It runs, but a container was restarted, or started and is not ready: probes may tell why."""
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and any(
        not one.get("ready") and (one.get("started") or one.get("restartCount"))
        for one in status.get("containerStatuses") or ()
    )


def _created(item: Object) -> datetime:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"])


def _seen_at(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(one) for one in times if one), event["metadata"]["creationTimestamp"])
