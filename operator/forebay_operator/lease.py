"""One operator works, others stand by: a Lease, judged by this process's own monotonic clock.

The holder counts its time from before it sent the last renewal that succeeded, a challenger from
when it saw the last change; so however clocks and requests drift, the holder has stopped before
another one starts.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from forebay_operator.cluster import FAILURES, ApiError, Cluster
from forebay_operator.kinds import LEASE
from forebay_operator.observed import Object

log = logging.getLogger(__name__)

NAME = "forebay-operator"
DURATION_SECONDS = 15
"""Nobody else takes the lease before it was unchanged for this long."""
DEADLINE_SECONDS = 10.0
"""The holder begins no write later than this after its last renewal."""
LAST_WRITE_SECONDS = 14.0
"""And lets none go on for longer than this; before that, a write has all the time there is."""
RENEW_SECONDS = 2.0
"""From the beginning of one renewal to that of the next, if they do not take longer."""
RETRY_SECONDS = 0.5
SOON_SECONDS = 0.1


class LeaseLost(Exception):
    """This process may write no more."""


def read_clock() -> float:
    """Seconds that pass whatever is done to the wall clock, also while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseHolder:
    """Takes the lease, keeps it, and gives it back."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        identity: str,
        clock: Callable[[], float] = read_clock,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self.beat: Callable[[], None] = lambda: None
        """Called once a round, whatever comes of it."""
        self._renewed_at = float("-inf")
        self._held: Object | None = None
        self._seen_version = ""
        self._seen_until = 0.0

    @property
    def is_held(self) -> bool:
        """Whether this process may write now."""
        return self._clock() - self._renewed_at <= DEADLINE_SECONDS

    def check(self) -> float:
        """The seconds that a write may take which begins now; LeaseLost where none may begin."""
        if not self.is_held:
            raise LeaseLost(f"Lease {self._namespace}/{NAME} was not renewed in time")
        return LAST_WRITE_SECONDS - (self._clock() - self._renewed_at)

    async def acquire(self) -> None:
        """Wait until the lease is this process's."""
        while True:
            self.beat()
            try:
                if await self.try_acquire():
                    log.info("Lease was acquired holder=%s", self._identity)
                    return
            except FAILURES as error:
                log.warning("Lease could not be read or written error=%r", error)
            await asyncio.sleep(self.seconds_to_next_try())

    def seconds_to_next_try(self) -> float:
        """A beat, or less where the lease that was seen is abandoned before the next one."""
        left = self._seen_until - self._clock()
        return min(left + SOON_SECONDS, RENEW_SECONDS) if left > 0 else RENEW_SECONDS

    async def try_acquire(self) -> bool:
        """Take the lease if it is free, ours, or was left; False if another process holds it."""
        asked_at = self._clock()
        lease = await self._cluster.get(LEASE, self._namespace, NAME)
        if lease is not None and not self._is_free(lease, asked_at):
            return False
        try:
            if lease is None:
                await self._create()
            else:
                await self._replace(lease)
        except ApiError as error:
            if error.status == 409:  # another process was faster
                return False
            raise
        return True

    async def keep(self) -> None:
        """Renew the lease until it is lost, which raises LeaseLost."""
        while True:
            self.beat()
            age = self._clock() - self._renewed_at
            await asyncio.sleep(max(RENEW_SECONDS - age, RETRY_SECONDS))
            await self.renew()

    async def renew(self) -> None:
        """Renew once; a failure is borne until the deadline, another holder is not."""
        try:
            await self._replace(self._held)
        except ApiError as error:
            if error.status in (404, 409):  # somebody wrote it: a person, another, or a late we
                await self._renew_after_look()
            else:
                self._bear(error)
        except FAILURES as error:
            self._bear(error)

    async def _renew_after_look(self) -> None:
        try:
            lease = await self._cluster.get(LEASE, self._namespace, NAME)
            if lease is None or not self._is_mine(lease):
                self._renewed_at = float("-inf")
                raise LeaseLost(f"Lease {self._namespace}/{NAME} was taken")
            await self._replace(lease)
        except FAILURES as error:
            self._bear(error)

    async def _create(self) -> None:
        asked_at = self._clock()
        self._held = await self._cluster.create(LEASE, self._build(None))
        self._renewed_at = asked_at

    async def _replace(self, lease: Object | None) -> None:
        asked_at = self._clock()
        self._held = await self._cluster.replace(LEASE, self._build(lease))
        self._renewed_at = asked_at

    def _bear(self, error: Exception) -> None:
        log.warning("Lease was not renewed error=%r", error)
        self.check()

    async def release(self) -> None:
        """Give the lease back, so that the next process need not wait for its end."""
        if self._held is None or self._renewed_at == float("-inf"):
            return
        self._renewed_at = float("-inf")
        try:
            held = await self._cluster.get(LEASE, self._namespace, NAME)
            if held is None or not self._is_mine(held):
                return
            spec = {**held["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._cluster.replace(LEASE, {**held, "spec": spec})
            log.info("Lease was released holder=%s", self._identity)
        except FAILURES as error:
            log.warning("Lease was not released error=%r", error)

    def _is_mine(self, lease: Object) -> bool:
        return bool((lease.get("spec") or {}).get("holderIdentity") == self._identity)

    def _is_free(self, lease: Object, now: float) -> bool:
        spec, version = lease.get("spec") or {}, lease["metadata"]["resourceVersion"]
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        if version != self._seen_version:
            duration = float(spec.get("leaseDurationSeconds", DURATION_SECONDS))
            self._seen_version, self._seen_until = version, now + duration
        return now > self._seen_until

    def _build(self, lease: Object | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Object = (lease or {}).get("spec") or {}
        is_mine = lease is not None and self._is_mine(lease)
        transitions = spec.get("leaseTransitions", 0) + (0 if is_mine or lease is None else 1)
        metadata = {"namespace": self._namespace, "name": NAME}
        if lease is not None:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": spec.get("acquireTime", now) if is_mine else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
