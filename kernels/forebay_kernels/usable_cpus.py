"""How many threads may compute: what a pod's CPU limit gives, not what its node has.

A thread for each core of the host, in a pod that gets two of them, makes every step wait for
threads that are throttled. Imports no torch, whose threads depend on it.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_PROC = Path("/proc/self")
_UNLIMITED = ("max", "-1")
_THREADS_VARIABLE = "OMP_NUM_THREADS"

logger = logging.getLogger(__name__)


def usable_cpus() -> int:
    """CPUs to use: the least of affinity, cgroup quota and OMP_NUM_THREADS; at least one.

    Affinity says what a cpuset allows. A quota is rounded to the nearest whole, halves up: with two
    threads for 1.5 CPUs a step is throttled at times, with one the half would be wasted; what is
    left of 1.25 is the server's.
    """
    num_allowed = len(os.sched_getaffinity(0))
    asked = _to_threads(os.environ.get(_THREADS_VARIABLE, ""))
    if asked is not None:
        num_allowed = min(num_allowed, asked)
    quota = read_quota(_PROC)
    return num_allowed if quota is None else max(1, min(num_allowed, math.floor(quota + 0.5)))


@cache
def _to_threads(text: str) -> int | None:
    """The threads that OMP_NUM_THREADS asks for; None where it asks for none, which is told once.

    Of a list, one number a level of nesting, the first: nothing here is nested.
    """
    levels = [level.strip() for level in text.split(",")]
    if all(re.fullmatch("0*[1-9][0-9]{0,8}", level) for level in levels):
        return int(levels[0])
    if text.strip():
        logger.warning(
            "Passed over %s=%s: it must be a whole number of at least 1, or a list of them; as "
            "many threads compute as the CPUs allow",
            _THREADS_VARIABLE,
            text[:40],
        )
    return None


def read_quota(proc: Path) -> float | None:
    """The least CPU limit of a process's cgroup and those above it; None where there is none.

    proc: the process's folder in /proc. Both versions of cgroups may be mounted, each in part.
    """
    quotas = [
        quota
        for hierarchy in _hierarchies(proc)
        for folder in hierarchy.folders
        if (quota := _quota_of(folder)) is not None
    ]
    return min(quotas, default=None)


class _Hierarchy(NamedTuple):
    """Where cgroups are mounted, and the process's own below that."""

    mount: Path
    own: PurePosixPath

    @property
    def folders(self) -> Iterator[Path]:
        """The process's cgroup and all above it, as far as they are seen here."""
        folder = self.mount / self.own
        while folder != self.mount:
            yield folder
            folder = folder.parent
        yield self.mount


def _hierarchies(proc: Path) -> Iterator[_Hierarchy]:
    """Those that limit CPUs."""
    try:
        own = dict(_own_paths((proc / "cgroup").read_text()))
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in mounts:
        seen, _, kind = line.partition(" - ")
        root, mount = seen.split()[3:5]
        filesystem, _, options = kind.split()[:3]
        is_unified = filesystem == "cgroup2"
        if is_unified or (filesystem == "cgroup" and "cpu" in options.split(",")):
            path = own.get("" if is_unified else "cpu")
            if path is not None:
                yield _Hierarchy(Path(mount), _below(PurePosixPath(path), PurePosixPath(root)))


def _own_paths(content: str) -> Iterator[tuple[str, str]]:
    """The process's path by controller; the second version's has no controller's name."""
    for line in content.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _below(path: PurePosixPath, root: PurePosixPath) -> PurePosixPath:
    """A cgroup's path as it is seen below the one that is mounted; that one if it is outside."""
    if ".." in path.parts or not path.is_relative_to(root):
        return PurePosixPath()
    return path.relative_to(root)


def _quota_of(folder: Path) -> float | None:
    """One cgroup's limit in CPUs."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    return None if quota in _UNLIMITED else int(quota) / int(period)
