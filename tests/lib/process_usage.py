"""What a process has used, as the kernel counts it."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Of one moment."""

    cpu_seconds: float
    peak_bytes: int
    """The most that was resident at a time."""


def read_usage(pid: int) -> Usage:
    """User and system time of all threads, and the peak of resident memory."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    peak_bytes = int(status["VmHWM"].split()[0]) * 1024
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), peak_bytes)
