"""A reverse proxy between an operator and the API server of a test, which does to requests what a
network and a busy API server do.

It passes everything through, watches too, unless the test's `rule` has a Fault for a call, or it
was told to be down, unreachable, or silent for some kinds.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


@dataclass(frozen=True)
class Call:
    """One request of the operator."""

    method: str
    path: str
    num_writes: int
    """How many writes there were until now, with this one if it is one; leases do not count."""
    is_watch: bool
    token: str

    @property
    def is_write(self) -> bool:
        """Whether it changes something other than a lease."""
        return self.method != "GET" and not self.is_lease

    @property
    def is_lease(self) -> bool:
        return "/leases" in self.path

    @property
    def plural(self) -> str:
        """The kind that it is about: the last part of the path, or the one before a name."""
        parts = self.path.strip("/").split("/")
        start = parts.index("namespaces") + 2 if "namespaces" in parts else 2
        kinds = parts[start:] if "namespaces" in parts else parts[-1:]
        return kinds[0] if kinds else ""


@dataclass(frozen=True)
class Fault:
    """What befalls a call: it waits, reaches the API server or not, and is answered how."""

    delay_seconds: float = 0.0
    is_delivered: bool = True
    is_answered: bool = True
    """False: its connection is cut instead."""
    status: int | None = None
    """An answer in the place of the API server's."""
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    and_then: Callable[[], None] = lambda: None
    """Done before the answer, if there is one."""


LOST = Fault(is_delivered=False, is_answered=False)
UNANSWERED = Fault(is_answered=False)

Rule = Callable[[Call], Fault | None]


def refuse(status: int, message: str = "played fault", **headers: str) -> Fault:
    """An answer that never was the API server's; headers are written with "_" for "-"."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = {"kind": "Status", "apiVersion": "v1", "code": status, "message": message}
    return Fault(is_delivered=False, status=status, body=body, headers=named)


def end_watch(code: int, message: str = "played fault") -> Fault:
    """A watch that begins, and says at once that it cannot go on."""
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    return Fault(is_delivered=False, status=200, body={"type": "ERROR", "object": status})


class FaultProxy:
    """One listening address, whose behaviour a test changes at any time."""

    def __init__(self, upstream: str, folder: Path) -> None:
        self.url = ""
        self.rule: Rule = lambda call: None
        self.silent: frozenset[str] = frozenset()
        """Plurals whose watches deliver nothing, and do not end."""
        self.calls: list[Call] = []
        self._upstream = upstream
        self._trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._identity = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._identity.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._reachable = asyncio.Event()
        self._transports: set[asyncio.Transport] = set()
        self._num_writes = 0

    @property
    def writes(self) -> list[Call]:
        """Everything that was asked to be changed, leases apart."""
        return [call for call in self.calls if call.is_write]

    def go_down(self) -> None:
        """Refuse connections, and cut those there are, as an API server that ended."""
        self._do(self._stop_listening())

    def come_up(self) -> None:
        """Listen again, at the same address."""
        self._do(self._listen(int(self.url.rpartition(":")[2])))

    def set_reachable(self, is_reachable: bool) -> None:
        """Let nothing through in either direction, without a word, or let all through again."""
        change = self._reachable.set if is_reachable else self._reachable.clear
        self._loop.call_soon_threadsafe(change)

    def cut_watches(self) -> None:
        """End every open connection; new ones are taken."""
        self._do(self._cut_all())

    @contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        """Listen on a port of loopback until the block ends."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="fault proxy")
        thread.start()
        self._started.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)
            thread.join()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reachable.set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust),
            timeout=aiohttp.ClientTimeout(),
            auto_decompress=False,
            skip_auto_headers=("Content-Type", "User-Agent", "Accept-Encoding"),
        )
        server = web.Server(self._handle, access_log=None)  # type: ignore[arg-type]
        self._runner = web.ServerRunner(server, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._listen(0)
        self._started.set()
        await self._ended.wait()
        await self._site.stop()
        await asyncio.sleep(0.05)  # for those who were shaking hands
        await self._cut_all()
        await self._runner.cleanup()
        await self._session.close()

    async def _listen(self, port: int) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._identity)
        await self._site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop_listening(self) -> None:
        await self._site.stop()
        await self._cut_all()

    async def _cut_all(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionError("The connection is gone")
        self._transports.add(transport)
        try:
            body = await request.read() or None
            await self._reachable.wait()
            call = self._note(request)
            fault = self.rule(call) or Fault()
            await asyncio.sleep(fault.delay_seconds)
            if fault.is_delivered:
                return await self._deliver(request, body, call, fault)
            return self._end_call(request, fault)
        finally:
            self._transports.discard(transport)

    def _note(self, request: web.BaseRequest) -> Call:
        is_write = request.method != "GET" and "/leases" not in request.path
        self._num_writes += is_write
        is_watch = request.query.get("watch") == "true"
        token = request.headers.get("Authorization", "").rpartition(" ")[2]
        call = Call(request.method, request.path, self._num_writes, is_watch, token)
        self.calls.append(call)
        return call

    async def _deliver(
        self, request: web.BaseRequest, body: bytes | None, call: Call, fault: Fault
    ) -> web.StreamResponse:
        headers = _passed_on(request.headers)
        address = self._upstream + request.path_qs
        asked = self._session.request(request.method, address, data=body, headers=headers)
        async with asked as answer:
            if fault.status is None and fault.is_answered:
                fault.and_then()
                return await self._pass_back(request, call, answer)
            await answer.read()
        return self._end_call(request, fault)

    def _end_call(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        fault.and_then()
        if not fault.is_answered and request.transport is not None:
            request.transport.abort()
        return web.json_response(fault.body, status=fault.status or 502, headers=fault.headers)

    async def _pass_back(
        self, request: web.BaseRequest, call: Call, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
        with suppress(aiohttp.ClientError, ConnectionError):  # either side may go at any time
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await self._reachable.wait()
                if not (call.is_watch and call.plural in self.silent):
                    await response.write(part)
            await response.write_eof()
        return response


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name.lower() not in HOP_BY_HOP}
