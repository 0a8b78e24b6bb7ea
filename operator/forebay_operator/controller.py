"""All that one operator process runs beside the watches: the lease, and, while it holds it, the
work.

kopf's handlers (`main`) feed events in from the first moment, so that a process that stands by
knows everything when its turn comes.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from functools import partial

from forebay_operator.cluster import FAILURES
from forebay_operator.garbage import sweep_garbage
from forebay_operator.kinds import find_kind
from forebay_operator.kubernetes_cluster import KubernetesCluster
from forebay_operator.lease import LeaseHolder, LeaseLost
from forebay_operator.loads.scrape import Scraper
from forebay_operator.observed import Object
from forebay_operator.reconcile import Planner, Reconciler
from forebay_operator.resync import Resync
from forebay_operator.settings import ProcessSettings
from forebay_operator.store import Store
from forebay_operator.telemetry.exposition import Exposition
from forebay_operator.telemetry.gauges import Gauges
from forebay_operator.telemetry.heartbeats import Heartbeats
from forebay_operator.telemetry.liveness import Liveness
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.worker import work
from forebay_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

NUM_WORKERS = 16
FILL_AGAIN_SECONDS = 2.0


def end_process() -> None:
    """Have kopf end this process in order; nothing is written on the way."""
    os.kill(os.getpid(), signal.SIGTERM)


class Controller:
    """Ties store, queue, workers and lease together."""

    def __init__(
        self,
        cluster: KubernetesCluster,
        settings: ProcessSettings,
        planner: Planner,
        end: Callable[[], None] = end_process,
    ) -> None:
        self._cluster = cluster
        self._end = end
        self.store = Store()
        self._queue = WorkQueue()
        self._metrics = Metrics()
        self._scraper = Scraper(self.store, self._queue, self._metrics)
        self._resync = Resync(cluster, self.store, self._queue, self._metrics, settings.namespaces)
        self._lease = LeaseHolder(cluster, settings.lease_namespace, settings.identity)
        self._reconciler = Reconciler(
            cluster, self.store, self._queue, settings.decisions, planner, self._scraper
        )
        self._loops = Heartbeats()
        self._liveness = Liveness(self._loops, self._queue, self._resync)
        self._exposition = Exposition(self._metrics.registry, settings.metrics_address)
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._connect()

    async def start(self) -> None:
        """Serve metrics, and begin to compete for the lease."""
        await self._exposition.start()
        self._tasks = (
            asyncio.create_task(self._run(), name="forebay controller"),
            asyncio.create_task(sweep_garbage(), name="forebay garbage"),
        )

    async def stop(self) -> None:
        """Stop all work, then give the lease back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lease.release()
        await self._exposition.stop()
        await self._cluster.close()

    def notice(self, event_type: str | None, item: Object) -> None:
        """Take one watch event in."""
        kind = find_kind(item["apiVersion"], item["kind"])
        self._metrics.count_watch_event(kind.plural, event_type or "LISTED")
        if event_type is None:
            self._resync.notice_list()
        is_gone = event_type == "DELETED"
        keys = self.store.drop(item) if is_gone else self.store.put(item)
        for key in keys:
            self._queue.add(key)

    def complaint(self) -> str:
        """Why this process should be restarted; empty if it should not."""
        return self._liveness.complaint()

    def _connect(self) -> None:
        """Have the parts tell of themselves to those who watch over them."""
        metrics, lease = self._metrics, self._lease
        self._cluster.permit = lease.check
        self._cluster.measure = metrics.observe_request
        self._queue.waited = metrics.observe_wait
        lease.beat = partial(self._loops.beat, "lease")
        self._scraper.beat = partial(self._loops.beat, "scrape")
        gauges = Gauges(self.store, self._queue, lease, metrics.watches, self._scraper.loads)
        metrics.registry.register(gauges)

    async def _run(self) -> None:
        """Lead once the lease is held; whatever ends that ends the process."""
        try:
            await self._lease.acquire()
            await self._lead()
        except* LeaseLost as lost:
            log.error("Lease was lost, this process ends error=%s", lost.exceptions[0])
        except* Exception:
            log.exception("Controller failed, this process ends")
        self._end()

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lease.keep())
            await self._fill()
            tasks.create_task(self._resync.run())
            tasks.create_task(self._scraper.run())
            for _ in range(NUM_WORKERS):
                tasks.create_task(work(self._queue, self._reconciler, self._metrics))

    async def _fill(self) -> None:
        """Know everything before the first decision."""
        while True:
            try:
                return await self._resync.fill()
            except FAILURES as error:
                log.warning("First full list failed error=%r", error)
                await asyncio.sleep(FILL_AGAIN_SECONDS)
