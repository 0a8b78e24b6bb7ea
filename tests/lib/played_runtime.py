"""Plays the runtime of pods: an HTTP server that says a load, on a loopback address of each pod's
own."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any

from json_handler import answer_json

Load = dict[str, Any]

PATIENCE_SECONDS = 60.0
"""Another test of this machine may hold a port for a while."""


def load(running: int, waiting: int = 0) -> Load:
    """An answer of `GET /load`."""
    return {"running": running, "waiting": waiting, "kvCacheUsage": 0.5, "freeKvTokens": 100}


@contextmanager
def play_runtimes(loads: dict[str, Load], port: int = 0) -> Iterator[int]:
    """Serve `GET /load` on each address, all on one port, which is returned: any, or a given one
    as soon as it is free."""
    servers: list[ThreadingHTTPServer] = []
    try:
        for address, said in loads.items():
            servers.append(_listen(address, port, said))
            port = servers[-1].server_port
        for server in servers:
            Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _listen(address: str, port: int, said: Load) -> ThreadingHTTPServer:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ThreadingHTTPServer((address, port), answer_json(lambda path: said))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def play_every_runtime(said: Load, port: int = 8000) -> Iterator[None]:
    """Answer `GET /load` for every address of this machine, in a process of its own.

    RuntimeError where the port is taken.
    """
    command = [sys.executable, __file__, str(port), json.dumps(said)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError(f"Port {port} is taken")
        yield
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _Always(asyncio.Protocol):
    """Says one answer to whatever is asked, on connections that are kept."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._answer * data.count(b"\r\n\r\n"))


async def _serve(port: int, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    answer = head.encode() + b"\r\n\r\n" + body
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Always(answer), "0.0.0.0", port, backlog=4096)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2].encode()))
