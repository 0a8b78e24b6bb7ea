"""A race detector watches the pool of threads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from forebay_kernels.cpu import build

_PROGRAM = Path(__file__).with_name("pool_races.cpp")


@pytest.mark.long
def test_no_thread_of_a_pool_races_another(tmp_path: Path) -> None:
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread", f"-I{build.SOURCES}"]
    sources = [str(_PROGRAM), str(build.SOURCES / "pool.cpp")]
    program = tmp_path / "pool_races"
    subprocess.run(
        [build.find_compiler(), *flags, *sources, "-o", str(program)], check=True, timeout=120
    )
    # Another sanitizer may be loaded into these tests, and none stands a second.
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, env=alone)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "every unit was run once", "")
