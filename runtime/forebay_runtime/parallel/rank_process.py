"""One other rank's process, as rank 0 sees it: what it is told, and whether it lives.

Imports no torch. The engine's thread tells and asks; the watch's thread checks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from multiprocessing import Pipe

from forebay_runtime.parallel.messages import Answer
from forebay_runtime.parallel.rank_loss import Blame, Finding, count_memory_kills, describe_exit
from forebay_runtime.parallel.vitals import BEAT

_MODULE = "forebay_runtime.parallel.follower"


class RankProcess:
    """A spawned rank."""

    def __init__(self, rank: int, num_ranks: int, meeting_file: int) -> None:
        """Start it; the thread that does must live as long as this process is to.

        meeting_file: the number of the open file that all ranks meet by.
        Raises: OSError.
        """
        self.rank = rank
        self.name = f"Rank {rank} of {num_ranks}"
        self.is_started = False
        """Has it answered once? Before that it imports, and gives no sign of life meanwhile."""
        self.is_asked = False
        """Is it to answer something, which may take as long as it takes?"""
        self.num_told = 0
        self._num_done = 0
        self._silent_ticks = 0
        self._behind_ticks = 0
        self._num_killed = count_memory_kills()
        self._failure: Answer | None = None
        self._reading = threading.Lock()
        self.orders, orders = Pipe()
        self._pulse, pulse = socket.socketpair()
        self._pulse.setblocking(False)
        fds = (orders.fileno(), pulse.fileno(), meeting_file)
        arguments = [str(number) for number in (rank, *fds, os.getpid())]
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            # A terminal's Ctrl-C goes to rank 0 alone, which drains.
            process_group=0,
        )
        orders.close()
        pulse.close()

    @property
    def process_id(self) -> int:
        """The operating system's number."""
        return self._process.pid

    def tell(self, data: bytes) -> None:
        """Send a pickled message."""
        self.num_told += 1
        self.orders.send_bytes(data)

    def receive(self, seconds: float) -> Answer | None:
        """What it answers; None if that takes longer.

        Raises: EOFError or OSError if it is gone.
        """
        with self._reading:
            if not self.orders.poll(seconds):
                return None
            answer: Answer = self.orders.recv()
            if answer.failure is not None:
                self._failure = answer
        self.is_asked = False
        return answer

    def find_loss(self, most_silent_ticks: int, most_behind_ticks: int) -> Finding | None:
        """How this rank is lost; None while it is well. To be called each tick.

        Ticks, not seconds: where all of the pod was stopped, and goes on, none has passed.
        """
        code = self._process.poll()
        if code is not None:
            return self._find_end(code)
        self._hear()
        name = f"{self.name} (process {self.process_id})"
        if self.is_started and self._silent_ticks > most_silent_ticks:
            how = " gave no sign of life: it is stopped, or its host stands still"
            return Finding(Blame.SILENT, 0.0, name, how)
        if self._behind_ticks > most_behind_ticks:
            return Finding(Blame.STUCK, 0.0, name, " lives, but does not finish its step")
        return None

    def _find_end(self, code: int) -> Finding:
        # What it told before it ended by itself, if nobody has read that yet.
        with contextlib.suppress(EOFError, OSError):
            while self.receive(0.0) is not None:
                pass
        if code > 0 and self._failure is not None:
            told = self._failure
            return Finding(Blame.ERROR, told.failed_at, self.name, f": {told.failure}")
        blame = Blame.SIGNAL if code < 0 else Blame.EXIT
        how = describe_exit(code, count_memory_kills() - self._num_killed)
        return Finding(blame, 0.0, self.name, how)

    def _hear(self) -> None:
        """Read all beats that came since the last tick."""
        beats = b""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            beats = self._pulse.recv(BEAT.size * 4096)
        self._silent_ticks = 0 if beats else self._silent_ticks + 1
        if not beats:
            return
        num_done: int = BEAT.unpack(beats[-BEAT.size :])[0]
        is_behind = num_done < self.num_told and num_done == self._num_done and not self.is_asked
        self._behind_ticks = self._behind_ticks + 1 if is_behind else 0
        self._num_done = num_done

    def kill(self) -> None:
        """End it, also if it is stopped; what the kernel holds back ends later."""
        self._process.kill()

    def close(self) -> None:
        """End it, wait for its end, and let go of the connections."""
        self.kill()
        self._process.wait()
        self.orders.close()
        self._pulse.close()
