"""A rank's sign of life to rank 0, and its end with it.

On a thread of its own: it goes on while the rank loads or computes, and stops with the process.
Imports no torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import threading

BEAT = struct.Struct("<Q")
"""How many messages the rank has done."""
BEAT_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


class Vitals:
    """Beats until the other end of the socket is gone; then this process is ended."""

    def __init__(self, pulse: socket.socket) -> None:
        self._pulse = pulse
        self.num_done = 0
        threading.Thread(target=self._beat, name="vitals", daemon=True).start()

    def _beat(self) -> None:
        poll = select.poll()
        # Nothing is ever sent this way, so what can be read is the end.
        poll.register(self._pulse, select.POLLIN)
        while not poll.poll(BEAT_SECONDS * 1000):
            # Rank 0 may be stopped, and its end full; it reads on when it goes on.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self._pulse.send(BEAT.pack(self.num_done), socket.MSG_DONTWAIT)
        os._exit(1)


def die_with(parent_id: int) -> None:
    """Let the kernel kill this process when the one that started it ends, also if it is stopped."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_id:
        os._exit(1)
