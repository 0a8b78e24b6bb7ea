"""Virtual environments with the pinned versions: a small one for the demo, the whole for the tests.

`environments.py FOLDER` makes the one of the tests.
"""

import subprocess
import sys
from pathlib import Path

from commands import run
from home import HOME, REPOSITORY

DEMO = HOME / "venv"
TESTED = (f"{REPOSITORY}[operator,runtime,test]",)
_CONSTRAINTS = REPOSITORY / "constraints.txt"


def make_demo_environment() -> Path:
    """Return the Python of the demo: the official `openai` client, and nothing of Forebay's own."""
    make_environment(DEMO, "openai")
    return DEMO / "bin/python"


def make_environment(folder: Path, *packages: str) -> None:
    """Make a virtual environment with `packages`, unless it was made with the same versions."""
    made_with = folder / "made-with"
    wanted = "\n".join([*packages, _CONSTRAINTS.read_text()])
    if made_with.is_file() and made_with.read_text() == wanted:
        return
    if not _can_make():
        run(REPOSITORY / "e2e/cluster/cluster", "install", "python3-venv", log="environments")
    run(sys.executable, "-m", "venv", folder, log="environments")
    pip = (folder / "bin/python", "-m", "pip", "install", "--quiet")
    run(*pip, "--constraint", _CONSTRAINTS, *packages, log="environments")
    made_with.write_text(wanted)


def _can_make() -> bool:
    """Say whether this Python can make environments with pip; Debian packs that apart."""
    asked = subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True)
    return asked.returncode == 0


if __name__ == "__main__":
    make_environment(Path(sys.argv[1]), "--editable", *TESTED)
