"""The script that says what a streamed token costs serves and counts, whatever it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "bench/host_streams.py"


@pytest.mark.component
def test_a_row_is_printed_for_each_number_of_clients() -> None:
    flags = ["--steps", "20", "--step-ms", "0.5", "--chat", "--top-p", "0.9"]
    command = [sys.executable, str(SCRIPT), *flags]
    done = subprocess.run(
        [*command, "--num-clients", "1", "3"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rows = [row.split("|")[1:-1] for row in done.stdout.splitlines()[2:]]
    assert [int(row[0]) for row in rows] == [1, 3]
    assert all(float(cost) > 0 for row in rows for cost in row[1:3])
