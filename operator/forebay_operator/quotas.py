"""Keeps the status of VRAMQuotas, which is the ledger that services are admitted by.

One namespace at a time, by one worker: what it wrote last is what it reads next.
"""

import logging
from datetime import datetime

from forebay_operator.cluster import ApiError, Cluster
from forebay_operator.kinds import DEPLOYMENT, VRAM_QUOTA
from forebay_operator.objects import controller_of, uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.quota.ledger import plan_quotas
from forebay_operator.store import Store
from forebay_operator.undeclared import apply_status
from forebay_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)


class QuotaKeeper:
    """Counts the services of a namespace against its budget."""

    def __init__(self, cluster: Cluster, store: Store, queue: WorkQueue) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue

    async def keep(self, namespace: str, now: datetime) -> None:
        """Write the ledger where it changed, and have the services that it concerns looked at."""
        quotas = self._store.quotas(namespace)
        if not quotas:
            return
        services = self._store.services(namespace)
        statuses = plan_quotas(quotas, services, self._deployments(services), now)
        for quota, status in zip(quotas, statuses, strict=True):
            if status != (quota.get("status") or {}):
                await self._write(quota, status)

    def _deployments(self, services: tuple[Object, ...]) -> dict[str, Object]:
        """By the service's uid; a foreign Deployment of its name is not its own."""
        found = {}
        for raw in services:
            namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
            deployment = self._store.find(DEPLOYMENT, namespace, name)
            if deployment is not None and controller_of(deployment).get("uid") == uid_of(raw):
                found[uid_of(raw)] = deployment
        return found

    async def _write(self, quota: Object, status: Object) -> None:
        """What comes back goes into the store at once: the next look must not miss it."""
        metadata = {name: quota["metadata"][name] for name in ("name", "namespace", "uid")}
        manifest = {
            "apiVersion": VRAM_QUOTA.api_version,
            "kind": VRAM_QUOTA.name,
            "metadata": metadata,
            "status": status,
        }
        try:
            written = await apply_status(self._cluster, VRAM_QUOTA, manifest)
        except ApiError as error:
            if error.status not in (404, 409):  # the quota is gone, or is another one by now
                raise
            return
        log.info("Counted VRAM namespace=%s quota=%s", metadata["namespace"], metadata["name"])
        for key in self._store.put(written):
            self._queue.add(key)
