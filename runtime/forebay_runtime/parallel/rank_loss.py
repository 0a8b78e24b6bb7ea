"""A rank is gone, and with it the model: which one, and how it ended.

Imports no torch: the server tells such errors in their own words.
"""

from __future__ import annotations

import signal
from pathlib import Path

_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


class RankLost(Exception):
    """A rank died or hangs; the message is one sentence that says which and how."""


def describe_exit(name: str, code: int, num_killed: int) -> str:
    """How a rank's process ended.

    code: as subprocess has it, negative for a signal. num_killed: processes of this container that
    the kernel has killed for want of memory since the rank was started.
    """
    if code >= 0:
        return f"{name} ended with exit code {code}; its own log lines say why"
    try:
        word = signal.Signals(-code).name
    except ValueError:
        word = f"signal {-code}"
    if -code == signal.SIGKILL and num_killed > 0:
        return (
            f"{name} was killed by the kernel, as the pod is out of memory; give it more, or lower "
            "--kv-cache-memory-bytes or --max-num-batched-tokens"
        )
    return f"{name} was ended by {word}"


def count_memory_kills(events: Path = _MEMORY_EVENTS) -> int:
    """Processes of this container that the kernel has killed so far for want of memory."""
    try:
        lines = events.read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(counts.get("oom_kill", "0"))
