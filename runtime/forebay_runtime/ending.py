"""How a command ends: by a signal, with what is half done removed, or with its result printed.

Called by the command line for commands that write files or take long; a server drains by its own
rules. Imports nothing heavy.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

_REMOVAL_SECONDS = 10.0
"""In which a command that was ended removes what is half done."""


class _Ended(BaseException):
    """A signal asks for the end; raised where the command is, so that it removes what is half done.

    One of these, so that no `except Exception` on the way takes it for a failure.
    """


class _Signals:
    """Those that have asked for the end."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._last_seconds = 0.0

    def end(self, number: int, _: object) -> None:
        """Raise _Ended; not again while the first one's is probably removing what is half done."""
        now = time.monotonic()
        if self.names and now - self._last_seconds < _REMOVAL_SECONDS:
            return
        self._last_seconds = now
        self.names.append(signal.Signals(number).name)
        raise _Ended


def run_until_ended(command: str, run: Callable[[], int]) -> int:
    """A command's exit status, or that of a signal that ended it, as shells have it.

    command: its name, for the sentence that then tells so.
    """
    signals = _Signals()
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # nohup, and shells for what runs in the background, have some ignored.
    handled = [number for number in asked if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signals.end) for number in handled}
    try:
        status = run()
    except BaseException:
        # Raised within a library, it may come out of it as another error.
        if not signals.names:
            raise
        status = 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not signals.names or not status:
        return status
    name = signals.names[0]
    print(f"{command}: ended by {name}; nothing was left behind", file=sys.stderr)
    return 128 + signal.Signals[name]


def print_whole(text: str) -> bool:
    """Print what a command has to say, all of it; whether that could be, else it is told why not.

    A disk may be full behind the standard output, or who reads it gone.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        print(f"the standard output did not take the result: {error}", file=sys.stderr)
        # What is still held would else be tried again at the process's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
