"""How many threads the engine may use: what a pod's CPU limit gives, not what its node has.

A thread for each core of the host, in a pod that gets two of them, makes every step wait for
threads that are throttled. Imports no torch, whose threads it prepares.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def wait_passively() -> None:
    """Let idle threads sleep rather than spin; to be called before torch is imported.

    A decode step has hundreds of parallel regions. Where a neighbour takes a core for a moment,
    spinning at the end of each made a step 20 times as long; sleeping costs a tenth on an idle
    machine.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def usable_cpus() -> int:
    """CPUs to use: the least of affinity, cgroup quota (rounded up) and OMP_NUM_THREADS."""
    num_allowed = len(os.sched_getaffinity(0))
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        num_allowed = min(num_allowed, int(asked))
    quota = read_quota(_CGROUP_V2, _CGROUP_V1)
    return num_allowed if quota is None else max(1, min(num_allowed, math.ceil(quota)))


def read_quota(cgroup_v2: Path, cgroup_v1: Path) -> float | None:
    """The cgroup's limit in CPUs; None where there is none."""
    try:
        quota, period = cgroup_v2.read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup_v1 / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup_v1 / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)
