"""How much sooner an engine is warm that finds what another compiled, as a second replica does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forebay_runtime.assembly import build_engine
from forebay_runtime.loading.random_weights import write_random_model
from forebay_runtime.start.phases import Phase
from gpu_parts.figure import Figure
from gpu_parts.models import config_of
from gpu_parts.run import Run
from gpu_parts.whole_model import engine_config

_MODEL = "SmolLM2-135M"
_WARMING = (Phase.KERNELS, Phase.TRIAL, Phase.SHAPES, Phase.GRAPHS)
"""What a second start does sooner; opening the GPU and reading weights take what they take."""
_STARTING = "import sys; from gpu_parts.starts import start; start(*sys.argv[1:])"


def measure(run: Run) -> Iterator[Figure]:
    """Two starts, each in a process of its own; the first finds empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        write_random_model(Path(folder) / "model", config_of(_MODEL, is_tiny=run.is_tiny))
        first, second = (_start_in_a_process(run, Path(folder)) for _ in range(2))
    for name in first:
        yield Figure(f"{_MODEL}: {name} with empty caches", first[name], "s")
        yield Figure(f"{_MODEL}: {name} with the caches of the first", second[name], "s")
    times = first["warm-up"] / second["warm-up"]
    yield Figure(f"{_MODEL}: warm-up, first by second", times, "times", least=3)


def _start_in_a_process(run: Run, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _STARTING, str(folder / "model"), str(int(run.is_tiny))]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton")}
    here = str(Path(__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join([here, environment["PYTHONPATH"]])
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def start(folder: str, is_tiny: str) -> None:
    """Print the seconds of what a start compiles and runs, by phase and in all."""
    run = Run(is_tiny == "1", {})
    engine = build_engine(engine_config(run, Path(folder)))
    engine.warm_up()
    by_phase = {str(phase): engine.startup_seconds[phase] for phase in _WARMING}
    print(json.dumps({"warm-up": sum(by_phase.values()), **by_phase}))
