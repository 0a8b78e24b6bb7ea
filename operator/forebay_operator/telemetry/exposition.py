"""Serves the metrics over HTTP, on the event loop that works: who asks reads a state at rest."""

import logging

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

log = logging.getLogger(__name__)


class Exposition:
    """`GET /metrics` at a host and port; nowhere without them."""

    def __init__(self, registry: CollectorRegistry, address: tuple[str, int] | None) -> None:
        self._registry = registry
        self._address = address
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self) -> None:
        """Listen, and log the port, which the system chose if it was 0; OSError if it is taken."""
        if self._address is None:
            return
        host, port = self._address
        await self._runner.setup()
        await web.TCPSite(self._runner, host or None, port).start()
        log.info("Metrics are served port=%d", self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
