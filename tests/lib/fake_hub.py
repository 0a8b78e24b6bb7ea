"""A model hub on the loopback interface: ranges, redirects, failures, and a count of bytes sent."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """One repository, `team/model`, served from a folder."""

    folder: Path
    url: str = ""
    storage_url: str = ""
    """Where files are redirected to, as a hub does with large ones; empty: served directly."""
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT, COMMIT: COMMIT})
    """Branches, tags and commits, and the commits that they name now."""
    token: str = ""
    """Required where set."""
    failures: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answers to give first: status and headers."""
    listing: str = ""
    """Answered instead of the repository's own listing."""
    ignores_ranges: bool = False
    is_silent: bool = False
    """Accepts connections and answers nothing until it is closed."""
    sends_short: bool = False
    """Closes connections halfway through a file."""
    bytes_sent: int = 0
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve_hub(
    folder: Path, tls: ssl.SSLContext | None = None, **options: object
) -> Iterator[FakeHub]:
    """Serve a folder until the block ends, by HTTPS where there is a certificate to show."""
    hub = FakeHub(folder, **options)  # type: ignore[arg-type]
    server = _Server(hub)
    hub.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def __init__(self, hub: FakeHub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.hub.requests.append((self.path, dict(self.headers)))
        if self.server.hub.is_silent:
            self.server.hub.closed.wait()
        elif self.server.hub.failures:
            status, headers = self.server.hub.failures.pop(0)
            self._answer(status, b"", headers)
        elif (
            self.server.hub.token
            and self.headers.get("Authorization") != f"Bearer {self.server.hub.token}"
        ):
            self._answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        else:
            self._serve()

    def _serve(self) -> None:
        asked = self.path.removeprefix("/api/models/team/model/revision/")
        if commit := self.server.hub.revisions.get(asked):
            names = [{"rfilename": path.name} for path in self.server.hub.folder.iterdir()]
            names.append({"rfilename": "onnx/model.safetensors"})
            found = {"id": "team/model", "sha": commit, "siblings": names}
            listing = self.server.hub.listing or json.dumps(found)
            self._answer(200, listing.encode(), {})
            return
        commits = "|".join(self.server.hub.revisions.values())
        match = re.fullmatch(rf"/team/model/resolve/(?:{commits})/([\w.-]+)", self.path)
        if match is None or not (self.server.hub.folder / match[1]).is_file():
            code = "RevisionNotFound" if "/revision/" in self.path else "RepoNotFound"
            known = self.path.startswith("/api/models/team/model/")
            self._answer(404, b"", {"X-Error-Code": code if known else "RepoNotFound"})
        elif self.server.hub.storage_url:
            self._answer(302, b"", {"Location": self.server.hub.storage_url + self.path})
        else:
            self._serve_file(self.server.hub.folder / match[1])

    def _serve_file(self, path: Path) -> None:
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = 0, size
        if asked and not self.server.hub.ignores_ranges:
            start, end = int(asked[1]), min(size, int(asked[2]) + 1)
        if start >= size:
            self._answer(416, b"", {"Content-Range": f"bytes */{size}"})
            return
        with path.open("rb") as stream:
            stream.seek(start)
            data = stream.read(end - start)
        if asked and not self.server.hub.ignores_ranges:
            self._answer(206, data, {"Content-Range": f"bytes {start}-{end - 1}/{size}"})
        else:
            self._answer(200, data, {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: len(body) // 2] if self.server.hub.sends_short else body
        self.wfile.write(body)
        self.server.hub.bytes_sent += len(body)

    def log_message(self, *_: object) -> None:
        pass
