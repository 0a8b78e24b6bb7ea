"""A server that a measurement starts, waits for, pauses, and ends with all that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.process_tree import is_running, signal_tree, tree_of

_READY_SECONDS = 1_200.0
_END_SECONDS = 20.0
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Recipe:
    """How a server is started; PORT in the command stands for the port that it gets."""

    name: str
    maker: str
    """Whose server it is."""
    precision: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready_path: str = "/health"

    @property
    def shown(self) -> str:
        """The command and its variables, for a table."""
        given = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*given, *self.command])


class ServerError(Exception):
    """A server ended, or was not ready in time."""


class Server:
    """A running server of a recipe."""

    def __init__(self, recipe: Recipe, log: Path) -> None:
        """Start it; `wait_ready` before it is asked."""
        self.recipe = recipe
        self.port = _free_port()
        self._log = log
        command = [str(self.port) if part == "PORT" else part for part in recipe.command]
        self._started = time.monotonic()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=_environment() | dict(recipe.environment),
                start_new_session=True,
            )
        self._stopped: list[int] = []

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def wait_ready(self) -> float:
        """The seconds from its start until it said that it is ready.

        Raises: ServerError with the end of its log.
        """
        url = f"http://127.0.0.1:{self.port}{self.recipe.ready_path}"
        while not _answers(url):
            seconds = time.monotonic() - self._started
            if self._process.poll() is not None or seconds > _READY_SECONDS:
                tail = self._log.read_text(errors="replace")[-2_000:]
                raise ServerError(f"{self.recipe.name} was never ready:\n{tail}")
            time.sleep(0.02)
        return time.monotonic() - self._started

    def pause(self) -> None:
        """Stop all its processes where they are: an idle server may spin, and would disturb."""
        self._stopped = tree_of(self.pid)
        signal_tree(self._stopped, signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        signal_tree(self._stopped, signal.SIGCONT)
        self._stopped = []

    def end(self) -> None:
        """Terminate it, and kill what of it does not end."""
        tree = tree_of(self.pid)
        signal_tree(tree, signal.SIGCONT)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        others = [pid for pid in tree if pid != self.pid]
        signal_tree(others, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while any(map(is_running, others)) and time.monotonic() < deadline:
            time.sleep(0.01)


def _environment() -> dict[str, str]:
    """This process's own, without what it was told of threads: that is for each recipe to say."""
    prefixes = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def _answers(url: str) -> bool:
    try:
        with _DIRECTLY.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
