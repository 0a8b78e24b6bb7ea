"""What a server and all processes that it started take, as the kernel counts it (Linux)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)


def tree_of(pid: int) -> list[int]:
    """The process and its living descendants, parents first."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(*_GONE):
                parent = int(_stat(int(folder.name))[1])
                children.setdefault(parent, []).append(int(folder.name))
    tree = [pid]
    for one in tree:
        tree += children.get(one, [])
    return tree


def signal_tree(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to each that still is."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def is_running(pid: int) -> bool:
    """Is it there, and more than what its parent has not yet asked after?"""
    try:
        return _stat(pid)[0] != "Z"
    except _GONE:
        return False


def rss_bytes(pids: Iterable[int]) -> int:
    """Resident memory, summed: pages that processes share count once for each."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def pss_bytes(pids: Iterable[int]) -> int:
    """Resident memory, in which each shared page counts once in all; slow for large processes."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of all their threads."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            fields = _stat(pid)
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def machine_seconds() -> tuple[float, float]:
    """Processor seconds since boot: that anything ran, and that the host gave to other guests."""
    user, nice, system, _, _, irq, softirq, steal, *_ = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS, steal / _TICKS


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name, which may hold anything: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
