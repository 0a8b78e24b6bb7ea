"""How much sooner an engine is warm that finds what another compiled, as a second replica does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from forebay_runtime.assembly import build_engine
from forebay_runtime.loading.random_weights import write_random_model
from gpu_parts.figure import Figure
from gpu_parts.models import config_of
from gpu_parts.run import Run
from gpu_parts.whole_model import engine_config

_MODEL = "SmolLM2-135M"
_STARTING = "import sys; from gpu_parts.starts import start; start(*sys.argv[1:])"


def measure(run: Run) -> Iterator[Figure]:
    """Two starts, each in a process of its own; the first finds empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        write_random_model(Path(folder) / "model", config_of(_MODEL, is_tiny=run.is_tiny))
        first, second = (_start_in_a_process(run, Path(folder)) for _ in range(2))
    yield Figure(f"{_MODEL}: warm-up with empty caches", first, "s")
    yield Figure(f"{_MODEL}: warm-up with the caches of the first", second, "s")
    yield Figure(f"{_MODEL}: warm-up, first by second", first / second, "times", least=3)


def _start_in_a_process(run: Run, folder: Path) -> float:
    command = [sys.executable, "-c", _STARTING, str(folder / "model"), str(int(run.is_tiny))]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton")}
    here = str(Path(__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join([here, environment["PYTHONPATH"]])
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


def start(folder: str, is_tiny: str) -> None:
    """Print the seconds of an engine's warm-up."""
    run = Run(is_tiny == "1", {})
    engine = build_engine(engine_config(run, Path(folder)))
    begin = time.perf_counter()
    engine.warm_up()
    print(time.perf_counter() - begin)
