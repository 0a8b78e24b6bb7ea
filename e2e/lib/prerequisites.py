"""What the machine must bring. Checked first, so that nothing is begun that cannot be ended."""

import os
import shutil
from pathlib import Path

from cluster import has_docker
from home import HOME

NEEDED_BYTES = 20 * 10**9
"""Programs, images and the node's copy of them take 15 GB; the rest is to work with."""


def find_missing() -> list[str]:
    """Return a sentence for each thing that is missing; none means that all can begin."""
    missing = [f"`{name}` is not installed." for name in ("make", "git") if not shutil.which(name)]
    if not has_docker():
        missing += [f"Docker does not answer, and {reason}" for reason in _why_not_local()]
    return missing + _why_no_room()


def _why_not_local() -> list[str]:
    reasons = []
    if not Path("/etc/debian_version").exists() or not shutil.which("apt-get"):
        reasons.append("a cluster without Docker needs Debian.")
    elif os.geteuid() != 0:
        reasons.append("a cluster without Docker needs root: run this as root.")
    return reasons


def _why_no_room() -> list[str]:
    """Look only before the first time: what was built has taken its room."""
    if (HOME / "images").exists():
        return []
    disk = next(folder for folder in (HOME, *HOME.parents) if folder.exists())
    free_bytes = shutil.disk_usage(disk).free
    if free_bytes >= NEEDED_BYTES:
        return []
    room = f"{free_bytes / 1e9:.0f} GB are free, {NEEDED_BYTES / 1e9:.0f} GB are needed"
    return [f"{room} under {HOME}; set FOREBAY_HOME to a folder with more."]
