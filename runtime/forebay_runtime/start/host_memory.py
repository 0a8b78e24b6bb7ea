"""How much memory this process may take of its host, asked before a large allocation.

Where a host overcommits, as the nodes of a cluster do, an allocation beyond all memory succeeds,
and the process is killed without a word while it touches the pages. Imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from forebay_budget.quantity import format_bytes
from forebay_runtime.config import StartError

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def check_room(num_bytes: int, term: str, knob: str) -> None:
    """Refuse to allocate more than this process can ever get, whatever others hold.

    Raises: StartError with the term that asked and what to change.
    """
    most = memory_limit()
    if num_bytes > most:
        raise StartError(
            f"There is too little memory for the {term}; {knob} (it needs "
            f"{format_bytes(num_bytes)}, and this process may have {format_bytes(most)} in all)"
        )


def memory_limit() -> int:
    """The most bytes that this process can ever have."""
    return read_memory_limit(_CGROUP_LIMITS)


def read_memory_limit(cgroup_limits: Sequence[Path]) -> int:
    """All memory of the host, or what the first cgroup file that is there allows of it."""
    num_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in cgroup_limits:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        return num_bytes if text == "max" else min(num_bytes, int(text))
    return num_bytes
