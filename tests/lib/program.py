"""Processes of a test's own, whose logs go to its folder."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Program:
    """One process of a test's own, which may be stopped and started again."""

    folder: Path
    name: str
    command: tuple[str | Path, ...]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its log goes on in `folder`."""
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def stop(self) -> None:
        """End it, and wait for its end."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def running(folder: Path, program: str, *command: str | Path) -> Iterator[None]:
    """Run a program whose log goes to `folder`, and end it with the block."""
    started = Program(folder, program, command)
    started.start()
    try:
        yield
    finally:
        started.stop()
