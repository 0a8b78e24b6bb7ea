"""The folders that all else is found from: this repository, and the keep of what is built."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("FOREBAY_HOME") or Path.home() / ".cache/forebay").absolute()
BUILT = ("cluster", "kind", "images", "models", "venv", "logs")
"""The folders under HOME that hold what was built: what `make clean` removes."""
