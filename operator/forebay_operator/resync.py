"""A full list of everything every few minutes: it fills the store at first, and keeps the watches
honest.

A watch can go silent, or miss a deletion after it had to list again. What a list shows and the
watch does not deliver within a grace period is put into the store here, and makes the liveness
probe fail.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from forebay_operator.cluster import FAILURES, Cluster, Listing
from forebay_operator.kinds import SURROUNDINGS, WATCHED, Kind
from forebay_operator.store import Difference, Store
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 180.0
GRACE_SECONDS = 10.0
"""How long a watch may take to deliver what a list has shown."""
OLDEST_LIST_SECONDS = 900.0
YOUNG_SECONDS = 60.0
"""At first every watch lists."""


class TimeRunsBackwards(Exception):
    """The API server knows less than it did. All that is remembered is worth nothing then."""


class Resync:
    """Lists everything, and compares."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        queue: WorkQueue,
        metrics: Metrics,
        namespaces: Sequence[str] = (),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._sleep = sleep
        self._metrics = metrics
        self._listed_at: float | None = None
        self._filled_at = float("inf")
        self._asked = asyncio.Event()
        self.silent: tuple[str, ...] = ()
        """Kinds whose watch did not deliver what the last list showed."""

    async def fill(self) -> None:
        """Put everything there is into the store and every service on the queue."""
        for kind, namespace in self._scopes():
            listing = await self._list(kind, namespace)
            self._correct(self._store.difference(listing, namespace))
        self._filled_at = time.monotonic()
        self._finish()

    def notice_list(self) -> None:
        """A watch lists anew: deletions that it has missed shall not wait for the next round."""
        if time.monotonic() - self._filled_at > YOUNG_SECONDS:
            self._asked.set()

    async def run(self) -> None:
        """Compare again and again, until cancelled."""
        while True:
            is_asked = await self._wait_for_turn()
            try:
                await self.compare(is_asked)
            except FAILURES as error:
                log.warning("Full list failed error=%r", error)
                self._metrics.count_error("list")

    async def compare(self, is_asked: bool = False) -> None:
        """List everything, give the watches time, correct what they still have not delivered.

        A watch that listed anew tells of no deletion that it missed; that makes it no silent one.
        """
        silent = []
        listings = [(await self._list(kind, scope), scope) for kind, scope in self._scopes()]
        if any(self._store.difference(listing, scope) for listing, scope in listings):
            await self._sleep(GRACE_SECONDS)
        for listing, scope in listings:
            difference = self._store.difference(listing, scope)
            if not difference:
                self._metrics.watches.beat(listing.kind.plural)
            else:
                if difference.newer or not is_asked:
                    self._metrics.count_error("watch")
                    silent.append(listing.kind.plural)
                self._report(listing.kind, difference)
                self._correct(difference)
        self.silent = tuple(dict.fromkeys(silent))
        self._finish()

    async def _wait_for_turn(self) -> bool:
        """Wait for the next round; True if it comes early, because a watch has listed anew."""
        pause = asyncio.ensure_future(self._sleep(INTERVAL_SECONDS))
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((pause, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            asked.cancel()
        is_asked = self._asked.is_set()
        self._asked.clear()
        return is_asked

    async def _list(self, kind: Kind, scope: str | None) -> Listing:
        newest = self._store.newest_version(kind)
        listing = await self._cluster.list(kind, scope, keep=self._store.shorten)
        if listing.resource_version < newest:
            raise TimeRunsBackwards(
                f"A list of {kind.plural} is of version {listing.resource_version}, while "
                f"{newest} was seen: the API server was restored from a backup"
            )
        return listing

    def complaint(self) -> str:
        """Why this process should be restarted; empty if it should not."""
        if self.silent:
            return f"The watch of {', '.join(self.silent)} did not deliver what a list shows"
        is_old = self._listed_at and time.monotonic() - self._listed_at > OLDEST_LIST_SECONDS
        return "The last full list is too old" if is_old else ""

    def _scopes(self) -> list[tuple[Kind, str | None]]:
        scopes = [(kind, namespace) for kind in WATCHED for namespace in self._namespaces]
        return scopes + [(kind, None) for kind in SURROUNDINGS if kind in self._store.readable]

    def _finish(self) -> None:
        self._listed_at = time.monotonic()
        for key in (*self._store.keys(), *self._store.keys_of_quotas()):
            self._queue.add(key)

    def _correct(self, difference: Difference) -> None:
        for item in difference.newer:
            for key in self._store.put(item):
                self._queue.add(key)
        for item in difference.ghosts:
            for key in self._store.drop(item):
                self._queue.add(key)

    def _report(self, kind: Kind, difference: Difference) -> None:
        log.warning(
            "Watch had not delivered kind=%s newer=%d ghosts=%d",
            kind.plural,
            len(difference.newer),
            len(difference.ghosts),
        )
