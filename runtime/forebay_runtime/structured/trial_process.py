"""The server's side of the trial program: start it, hand it structures, start it anew if it died.

Owned by the compiler; used on the event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from forebay_runtime.structured.limits import MAX_CPU_SECONDS, MAX_MEMORY_BYTES, MAX_WALL_SECONDS
from forebay_runtime.structured.spec import TITLES, Kind, StructureError
from forebay_runtime.structured.vocabulary import Vocabulary

_START_SECONDS = 30.0
"""What the program may take for its own start on a busy machine, besides."""


class TooCostly(StructureError):
    """Trying it out took more than was allowed; by_the_clock, or of processor and memory."""

    def __init__(self, kind: Kind, by_the_clock: bool) -> None:
        """Say so of a structure of this kind."""
        super().__init__(
            f"The {TITLES[kind]} is too complex: to build it takes more than "
            f"{MAX_CPU_SECONDS} s or {MAX_MEMORY_BYTES // 2**20} MiB"
        )
        self.by_the_clock = by_the_clock


@dataclass(frozen=True)
class Verdict:
    """A structure that may be built in the server: its grammar, and the memory that it took."""

    grammar: str
    memory_bytes: int


class TrialProcess:
    """One running trial program."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Start it; returns at once. Structures wait until it has read the vocabulary."""
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "forebay_runtime.structured.trial", str(theirs.fileno())]
        with theirs, os.fdopen(os.memfd_create("vocabulary"), "w+b") as words:
            pickle.dump(vocabulary, words)
            words.seek(0)
            self._process = subprocess.Popen(command, stdin=words, pass_fds=[theirs.fileno()])

    @property
    def is_alive(self) -> bool:
        """Can it be handed anything?"""
        return self._process.poll() is None

    @property
    def process_id(self) -> int:
        """The program's process id."""
        return self._process.pid

    def close(self) -> None:
        """End it; what it was trying ends by the kernel's limits, unheard."""
        self._door.close()
        self._process.kill()
        self._process.wait()

    async def try_out(self, kind: Kind, text: str, cpu_seconds: float) -> Verdict:
        """Have a structure built and walked through.

        Raises: StructureError if it is at fault; TooCostly if it needs more than cpu_seconds, or
        than the limits for all; OSError if the program is gone.
        """
        started = time.monotonic()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                socket.send_fds(self._door, [b"\0"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        request = {"kind": kind, "text": text, "cpu_seconds": cpu_seconds}
        answer = await self._ask(ours, json.dumps(request).encode())
        if not answer.strip():
            raise TooCostly(kind, time.monotonic() - started >= MAX_WALL_SECONDS)
        fields = json.loads(answer)
        if "error" in fields:
            raise StructureError(fields["error"])
        return Verdict(fields["grammar"], fields["memory_bytes"])

    async def _ask(self, ours: socket.socket, request: bytes) -> bytes:
        """What the fork answers: a blank when it begins, and JSON unless it was ended before."""
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(MAX_WALL_SECONDS + _START_SECONDS):
                writer.write(request)
                writer.write_eof()
                answer = await reader.read()
        finally:
            writer.close()
        if not answer:
            raise ConnectionResetError("the trial program ended")
        return answer
