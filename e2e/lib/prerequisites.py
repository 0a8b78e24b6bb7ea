"""What the machine must bring. Checked first, so that nothing is begun that cannot be ended."""

import os
import shutil
from pathlib import Path

from cluster import has_docker


def find_missing() -> list[str]:
    """Return a sentence for each thing that is missing; none means that all can begin."""
    missing = [f"`{name}` is not installed." for name in ("make", "git") if not shutil.which(name)]
    if not has_docker():
        missing += [f"Docker does not answer, and {reason}" for reason in _why_not_local()]
    return missing


def _why_not_local() -> list[str]:
    reasons = []
    if not Path("/etc/debian_version").exists() or not shutil.which("apt-get"):
        reasons.append("a cluster without Docker needs Debian.")
    elif os.geteuid() != 0:
        reasons.append("a cluster without Docker needs root: run this as root.")
    return reasons
