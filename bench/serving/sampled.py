"""Runs forebay's command line while a thread of it looks at what the others are doing.

    python bench/serving/sampled.py REPORT serve MODEL …

Started by profile_server.py. SIGUSR1 begins a new count; SIGUSR2 writes the one so far to REPORT.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

_INTERVAL_SECONDS = 0.005
_OURS = ("forebay_runtime", "forebay_kernels")
_WAITS = frozenset({"wait", "select", "poll", "get", "acquire", "recv", "accept", "_worker"})
"""Python's own functions in which a thread stands while it has nothing to do."""
_DEEPEST = 4


def name_of(frame: FrameType) -> str:
    """A function, by its module and its own name."""
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def path_of(frame: FrameType) -> list[str]:
    """Our own functions that are being called, the innermost last, then what they called at last.

    Empty where the thread waits.
    """
    if frame.f_code.co_name in _WAITS:
        return []
    leaf, names = name_of(frame), []
    at: FrameType | None = frame
    while at is not None:
        name = name_of(at)
        if name.startswith(_OURS):
            names.append(name)
        at = at.f_back
    path = names[:_DEEPEST][::-1]
    return path if names and leaf == names[0] else [*path, leaf]


class Sampler(threading.Thread):
    """Counts paths by thread."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self.restart()

    def restart(self) -> None:
        """Forget what was counted."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self.num_samples = 0

    def run(self) -> None:
        """For ever."""
        while True:
            time.sleep(_INTERVAL_SECONDS)
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            self.num_samples += 1
            for ident, frame in sys._current_frames().items():
                if ident != self.ident and (path := path_of(frame)):
                    self.counts[names.get(ident, "?"), " > ".join(path)] += 1

    def write(self, to: Path) -> None:
        """As JSON: how many samples, and [thread, path, count] from the most to the least."""
        found = [[*key, count] for key, count in self.counts.most_common()]
        part = to.with_suffix(".part")
        part.write_text(json.dumps({"num_samples": self.num_samples, "counts": found}))
        part.rename(to)


def main() -> None:
    """Sample, and run the command line."""
    report = Path(sys.argv.pop(1))
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, lambda *_: sampler.restart())
    signal.signal(signal.SIGUSR2, lambda *_: sampler.write(report))
    sampler.start()
    from forebay_runtime.cli import main as run

    run()


if __name__ == "__main__":
    main()
