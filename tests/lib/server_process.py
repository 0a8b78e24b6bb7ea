"""Start a `forebay serve`-like process, find its port, wait for it, and leave nothing behind."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_OPENED = re.compile(r"Opened host=\S+ port=(\d+)")
_NO_TLS = ssl.create_default_context()
"""Made once: reading the certificates costs a client more than its request does."""
_PATIENCE_SECONDS = 300.0


class ServerProcess:
    """A running server and what it said."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._port: int | None = None

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def port(self) -> int:
        """Where it listens; waits until it does."""
        while self._port is None:
            match = self._find(_OPENED)
            if match:
                self._port = int(match[1])
            elif self._process.poll() is not None:
                raise RuntimeError("The server ended:\n" + "\n".join(self.lines))
            else:
                time.sleep(0.01)
        return self._port

    def _find(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return next((m for line in list(self.lines) if (m := pattern.search(line))), None)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def url(self) -> str:
        """The base of its paths."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx.Response:
        """One GET on a connection of its own."""
        return httpx.get(self.url + path, timeout=_PATIENCE_SECONDS, verify=_NO_TLS)

    def wait_ready(self) -> None:
        """Wait for /ready."""
        self.wait_status("/ready", 200)

    def wait_status(self, path: str, status: int) -> None:
        """Wait until a path answers with a status."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.get(path).status_code != status:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{path} never gave {status}:\n" + "\n".join(self.lines))
            time.sleep(0.01)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        code = self._process.wait(_PATIENCE_SECONDS)
        self._reader.join(_PATIENCE_SECONDS)
        return code

    def close(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def running(command: Sequence[str], termination_log: Path) -> Iterator[ServerProcess]:
    """A server for the length of a with block."""
    server = ServerProcess(
        command, {"FOREBAY_TERMINATION_LOG": str(termination_log), "OMP_NUM_THREADS": "1"}
    )
    try:
        yield server
    finally:
        server.close()


@contextmanager
def fake_server(
    folder: Path, engine: dict[str, Any] | None = None, **options: Any
) -> Iterator[ServerProcess]:
    """The real server around the fake engine; folder takes its termination log."""
    log = folder / "termination-log"
    given = {
        "served_model_name": "fake",
        "host": "127.0.0.1",
        "port": 0,
        "max_num_seqs": 4,
        "lame_duck_seconds": 0.0,
        "prepares_structures": False,
        "shutdown_timeout": 10.0,
        "termination_log": str(log),
    } | options
    script = Path(__file__).with_name("fake_server.py")
    with running([sys.executable, str(script), json.dumps([given, engine or {}])], log) as server:
        yield server
