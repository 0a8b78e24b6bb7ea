"""Plays the runtime of pods: an HTTP server that says a load, on a loopback address of each pod's
own."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Load = dict[str, float]


def load(running: int, waiting: int = 0) -> Load:
    """An answer of `GET /load`."""
    return {"running": running, "waiting": waiting, "kvCacheUsage": 0.5, "freeKvTokens": 100}


@contextmanager
def play_runtimes(loads: dict[str, Load]) -> Iterator[int]:
    """Serve `GET /load` on each address, all on one port, which is returned."""
    servers: list[ThreadingHTTPServer] = []
    port = 0
    try:
        for address, said in loads.items():
            servers.append(ThreadingHTTPServer((address, port), _handler(said)))
            port = servers[-1].server_port
        for server in servers:
            Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(said: Load) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
