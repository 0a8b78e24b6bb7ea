"""A rank is gone, and with it the model: which one, and how it ended.

Imports no torch: the server tells such errors in their own words.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


class RankLost(Exception):
    """A rank died or hangs; the message is one sentence that says which and how."""


class Blame(IntEnum):
    """How a rank was found, what explains the others' state first.

    One that is killed breaks the exchange that the others are in, and they end with an error; one
    that is stopped, or fails, leaves them waiting.
    """

    SIGNAL = 0
    SILENT = 1
    ERROR = 2
    EXIT = 3
    STUCK = 4


@dataclass(frozen=True, order=True)
class Finding:
    """A rank that is lost; the first of several in order is their cause.

    failed_at: of an error, when it was met, by the clock that all processes of a host share.
    name: Rank 1 of 2. how: the rest of the sentence.
    """

    blame: Blame
    failed_at: float
    name: str
    how: str


def explain_loss(findings: Sequence[Finding]) -> RankLost:
    """What is told of ranks that were found lost at the same time."""
    first = min(findings)
    stuck = [finding.name for finding in findings if finding.blame is Blame.STUCK]
    if first.blame is Blame.STUCK and len(stuck) > 1:
        return RankLost(f"{', '.join(stuck)}: they live, but none finishes its step")
    return RankLost(f"{first.name}{first.how}")


def describe_exit(code: int, num_killed: int) -> str:
    """How a rank's process ended, to follow its name.

    code: as subprocess has it, negative for a signal. num_killed: processes of this container that
    the kernel has killed for want of memory since the rank was started.
    """
    if code >= 0:
        return f" ended with exit code {code}; its own log lines say why"
    try:
        word = signal.Signals(-code).name
    except ValueError:
        word = f"signal {-code}"
    if -code == signal.SIGKILL and num_killed > 0:
        return (
            " was killed by the kernel, as the pod is out of memory; give it more, or lower "
            "--kv-cache-memory-bytes or --max-num-batched-tokens"
        )
    return f" was ended by {word}"


def count_memory_kills(events: Path = _MEMORY_EVENTS) -> int:
    """Processes of this container that the kernel has killed so far for want of memory."""
    try:
        lines = events.read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(counts.get("oom_kill", "0"))
