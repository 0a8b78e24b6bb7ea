"""kopf's entry: `kopf run -m forebay_operator.main`. Handlers only hand events over; nothing
happens here.

Only `on.event` handlers exist (no create, update, delete, field, timer or daemon ones), so kopf
writes nothing: no annotations, no finalizers.
"""

import asyncio
import logging
import os
import random
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import kopf

from forebay_operator.cluster import FAILURES, ApiError, nothing
from forebay_operator.controller import Controller
from forebay_operator.credentials import Login, load_configuration
from forebay_operator.kinds import (
    CHILDREN,
    INFERENCE_SERVICE,
    MANAGED_SELECTOR,
    SURROUNDINGS,
    VRAM_QUOTA,
    WATCHED,
    Kind,
)
from forebay_operator.kubernetes_cluster import PAGE_SIZE, KubernetesCluster
from forebay_operator.planning import plan
from forebay_operator.settings import read_settings

RETRY_SECONDS = 3.0
EXIT_SECONDS = 10.0
"""How long kopf may take to end once everything of ours has."""
LONGEST_BACKOFF_SECONDS = 4.0

_running: list[Controller] = []
_login = Login()


@kopf.on.login()
async def login(**_: Any) -> kopf.ConnectionInfo:
    """Give kopf its credentials."""
    return await _login.answer()


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Set kopf up, wait for the API server and the CRD, and begin to compete for the lease."""
    configure(settings)
    process = read_settings()
    cluster = KubernetesCluster(await load_configuration(), load_configuration)
    controller = Controller(cluster, process, plan)
    try:
        namespace = process.namespaces[0] if process.namespaces else None
        for kind in (INFERENCE_SERVICE, VRAM_QUOTA):
            await cluster.list(kind, namespace, keep=nothing)
        readable = [kind for kind in SURROUNDINGS if await _can_list(cluster, kind)]
    except FAILURES as error:
        await cluster.close()
        raise kopf.TemporaryError(_explain(error), delay=RETRY_SECONDS) from error
    controller.store.readable = frozenset(readable)
    for kind in readable:
        _watch(kind)
    await controller.start()
    _running.append(controller)


@kopf.on.cleanup()
async def stop(**_: Any) -> None:
    """Stop all work and give the lease back."""
    while _running:
        await _running.pop().stop()
    # kopf may wait for a login that nobody answers any more, where a watch has failed.
    asyncio.get_running_loop().call_later(EXIT_SECONDS, os._exit, 1)


@kopf.on.probe(id="watches", errors=kopf.ErrorsMode.PERMANENT)
async def check_watches(**_: Any) -> str:
    """Fail liveness where a watch went silent."""
    for controller in _running:
        complaint = controller.complaint()
        if complaint:
            raise kopf.PermanentError(complaint)
    return "ok"


class Backoffs:
    """Seconds between kopf's tries, without an end: an outage is no reason to end a watch.

    They stay short, for a watch that sleeps is blind after the outage; and no two are alike, for
    all watches try at once.
    """

    def __iter__(self) -> Iterator[float]:
        for longest in chain((0.5, 1.0, 2.0), repeat(LONGEST_BACKOFF_SECONDS)):
            yield longest * (0.5 + random.random() / 2)


class NoDiffBase(kopf.DiffBaseStorage):
    """Spares the copies of each object that kopf compares for handlers that do not exist here."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing is compared."""
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Nothing was stored."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is stored."""


async def notice(event: kopf.RawEvent, **_: Any) -> None:
    """Hand one event over."""
    for controller in _running:
        controller.notice(event["type"], event["object"])


def configure(settings: kopf.OperatorSettings) -> None:
    """What experience with kopf in production asks for."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = settings.networking.connect_timeout = 10
    settings.watching.chunk_size = PAGE_SIZE
    settings.networking.request_timeout = 60
    settings.networking.enforce_retry_after = True
    settings.networking.error_backoffs = Backoffs()
    settings.execution.default_backoff = 5
    settings.queueing.error_delays = [1, 2, 5, 10, 30, 60]
    settings.queueing.exit_timeout = 0.5
    settings.queueing.idle_timeout = 0.1  # until then an event's whole object is kept
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.process.ultimate_exiting_timeout = 25
    for kind in CHILDREN:
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = MANAGED_SELECTOR
    for noisy in ("kopf.objects", "kopf.activities.probe", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


async def _can_list(cluster: KubernetesCluster, kind: Kind) -> bool:
    """Whether a kind may be read, and is there: Kubernetes has ResourceSlices from 1.34 on."""
    try:
        await cluster.list(kind, None, keep=nothing)
    except ApiError as error:
        if error.status in (403, 404):
            return False
        raise
    return True


def _explain(error: Exception) -> str:
    if not isinstance(error, ApiError):
        return f"The API server does not answer: {error!r}"
    if error.status == 404:
        return "A CRD of group forebay.dev is missing; apply crds/ first."
    return f"The API server refused to list: {error.message}"


def _watch(kind: Kind) -> None:
    kopf.on.event(kind.group, kind.version, kind.plural)(notice)


for _kind in WATCHED:
    _watch(_kind)
