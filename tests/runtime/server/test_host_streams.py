"""The script that says what a streamed token costs serves and counts, whatever it costs."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "bench/host_streams.py"
_spec = importlib.util.spec_from_file_location("host_streams", SCRIPT)
assert _spec is not None and _spec.loader is not None
host_streams: Any = importlib.util.module_from_spec(_spec)
sys.modules["host_streams"] = host_streams
_spec.loader.exec_module(host_streams)


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
    assert all(len([float(cost) for cost in row[1:]]) == 3 for row in rows)


def test_the_engines_thread_is_the_busiest_of_the_time_that_is_measured() -> None:
    loader, engine, new = 11, 12, 13
    before = host_streams.Reading(5.0, 10, {10: (1.0, 0.5), loader: (9.0, 2.0), engine: (1.0, 0.0)})
    after = host_streams.Reading(
        8.0, 10, {10: (1.5, 0.5), loader: (9.0, 2.0), engine: (2.0, 0.25), new: (0.5, 0.0)}
    )
    assert after.since(before) == host_streams.Spent(3.0, 0.5, 1.0, 0.25)
