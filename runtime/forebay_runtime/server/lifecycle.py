"""The server's life: loading, serving, lame duck, draining, gone; or failed.

SIGTERM starts the one drain there is. In the lame-duck seconds newcomers are served as before,
because the cluster still sends them; after that they get 503, and what is in progress is finished.
Runs on the asyncio loop; decides, and asks its Ward to act.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import signal
from collections.abc import Iterable
from typing import Protocol

from forebay_runtime.server.connection import Connection
from forebay_runtime.server.options import ServeOptions

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_FLUSH_SECONDS = 2.0
"""How long answers that were cut get to carry their error to the client."""


class Phase(enum.Enum):
    """Where in its life the server is."""

    LOADING = "loading"
    SERVING = "serving"
    LAME_DUCK = "lame duck"
    DRAINING = "draining"
    FAILED = "failed"


class Ward(Protocol):
    """What the lifecycle watches over."""

    @property
    def connections(self) -> Iterable[Connection]:
        """Every open connection."""

    @property
    def is_stalled(self) -> bool:
        """Will what is in progress never end?"""

    def cut_all(self) -> int:
        """End every answer with an error; returns how many there were."""


class Lifecycle:
    """One server's phase, its requests in progress, and its end."""

    def __init__(self, options: ServeOptions) -> None:
        """Start in the phase LOADING."""
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._drain: asyncio.Task[None] | None = None
        self.phase = Phase.LOADING
        self.num_in_progress = 0
        self.num_cut = 0
        """Answers that the drain's end cut short."""
        self.exit_code: asyncio.Future[int] = self._loop.create_future()

    @property
    def is_ready(self) -> bool:
        """Should newcomers be sent here?"""
        return self.phase in (Phase.SERVING, Phase.LAME_DUCK)

    @property
    def is_leaving(self) -> bool:
        """Was the server told to go?"""
        return self.phase in (Phase.LAME_DUCK, Phase.DRAINING, Phase.FAILED)

    @property
    def turns_newcomers_away(self) -> bool:
        """Is a connection made now too late to be served?"""
        return self.phase in (Phase.DRAINING, Phase.FAILED)

    def become_ready(self) -> None:
        """Warm-up has ended."""
        if self.phase is Phase.LOADING:
            self.phase = Phase.SERVING

    def handle_signals(self, ward: Ward) -> None:
        """Own SIGTERM and SIGINT; the second of either ends the process at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number, ward)

    def _on_signal(self, number: signal.Signals, ward: Ward) -> None:
        if self._drain is not None or self.exit_code.done():
            logger.warning("Left at once, told twice signal=%s", number.name)
            os._exit(128 + number)
        logger.info("Received signal=%s phase=%s", number.name, self.phase.value)
        # At a terminal nobody needs time to forget the server.
        lame_duck = 0.0 if number is signal.SIGINT else self._options.lame_duck_seconds
        if self.phase is Phase.LOADING:
            self._finish(0)
        elif self.phase is Phase.SERVING:
            self._drain = self._loop.create_task(self._run_drain(ward, lame_duck))

    async def fail(self) -> None:
        """The engine is gone: give the errors time to reach their clients, then end."""
        self.phase = Phase.FAILED
        await self._until_quiet(_FLUSH_SECONDS)
        self._finish(1)

    async def _run_drain(self, ward: Ward, lame_duck_seconds: float) -> None:
        self.phase = Phase.LAME_DUCK
        for connection in list(ward.connections):
            connection.announce_close()
        await asyncio.sleep(lame_duck_seconds)
        if self.phase is not Phase.LAME_DUCK:  # failed meanwhile
            return
        self.phase = Phase.DRAINING
        logger.info("Turned newcomers away in_progress=%d", self.num_in_progress)
        deadline = self._loop.time() + self._options.shutdown_timeout
        while not self._is_drained(ward) and self._loop.time() < deadline and not ward.is_stalled:
            for connection in list(ward.connections):
                connection.close_if_silent()
            await asyncio.sleep(_TICK_SECONDS)
        if self.phase is not Phase.DRAINING:
            return
        if self.num_in_progress:
            self.num_cut = ward.cut_all()
            logger.warning("Cut answers=%d", self.num_cut)
            await self._until_quiet(_FLUSH_SECONDS)
        self._finish(1 if ward.is_stalled else 0)

    def _is_drained(self, ward: Ward) -> bool:
        return not self.num_in_progress and not any(c.is_owed_service for c in ward.connections)

    async def _until_quiet(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while self.num_in_progress and self._loop.time() < deadline:
            await asyncio.sleep(_TICK_SECONDS)

    def _finish(self, code: int) -> None:
        if not self.exit_code.done():
            self.exit_code.set_result(code)
