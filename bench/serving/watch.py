"""Watches a server while it is loaded: its memory, and who else kept the processors busy."""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import dataclass
from types import TracebackType

from serving.process_tree import cpu_seconds, machine_seconds, pss_bytes, rss_bytes, tree_of

_INTERVAL_SECONDS = 0.5


@dataclass(frozen=True)
class Seen:
    """other_cores: kept busy by programs that were not measured; stolen_cores: by other guests."""

    peak_rss_bytes: int
    pss_bytes: int
    other_cores: float
    stolen_cores: float
    server_cores: float


class Watch:
    """For the length of a with block; `seen` stands after it."""

    seen: Seen

    def __init__(self, pid: int) -> None:
        self._pids = tree_of(pid)
        self._peak = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._start = self._clocks()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
        pairs = zip(self._start, self._clocks(), strict=True)
        wall, busy, stolen, server, own = (after - before for before, after in pairs)
        self.seen = Seen(
            peak_rss_bytes=self._peak,
            pss_bytes=pss_bytes(self._pids),
            other_cores=max(0.0, busy - server - own) / wall,
            stolen_cores=stolen / wall,
            server_cores=server / wall,
        )

    def _watch(self) -> None:
        while True:
            self._peak = max(self._peak, rss_bytes(self._pids))
            if self._stopped.wait(_INTERVAL_SECONDS):
                return

    def _clocks(self) -> tuple[float, float, float, float, float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = cpu_seconds([os.getpid()]) + children.ru_utime + children.ru_stime
        return time.monotonic(), *machine_seconds(), cpu_seconds(self._pids), own
