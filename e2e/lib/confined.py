"""Runs a script in an image as a pod does: a user that the image does not know, a root file system
that nobody writes to, and a few empty folders."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

USER = "1234567:0"
"""As a platform picks them that gives each namespace a range of user ids."""
_MOUNT = """
mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"
for folder in $FOLDERS; do mount -t tmpfs -o mode=1777 scratch "$0$folder"; done
exec chroot --userspec="$USERSPEC" "$0" /usr/bin/env -i $ENVIRONMENT python -c "$SCRIPT"
"""


def run_confined(
    root: Path, script: str, folders: Sequence[str], environment: Mapping[str, str]
) -> str:
    """Run a Python script in an image's root file system; what it printed.

    folders: that are there in the image, and are empty and may be written to meanwhile.
    Raises: AssertionError with what it wrote if it fails.
    """
    variables = {"PATH": "/opt/forebay/bin:/usr/bin:/bin", **environment}
    told = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "FOLDERS": " ".join(folders),
        "USERSPEC": USER,
        "ENVIRONMENT": " ".join(f"{name}={value}" for name, value in variables.items()),
        "SCRIPT": script,
    }
    command = ["unshare", "--mount", "--net", "--", "sh", "-ec", _MOUNT, str(root)]
    ended = subprocess.run(command, env=told, capture_output=True, text=True, timeout=300)
    if ended.returncode != 0:
        raise AssertionError(f"It ended with {ended.returncode}: {ended.stderr[-3000:]}")
    return ended.stdout
