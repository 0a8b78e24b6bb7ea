"""Tests of what measures: its parts are imported as its scripts import them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
