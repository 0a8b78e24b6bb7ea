"""How fast the engine is on one GPU: kernels, products and whole models, against stated bars.

    python bench/gpu.py --out FILE [--budget-seconds 345] [--parts NAME …] [--tiny]

Needs torch, Triton and numpy, and nothing else that is installed: weights are random, in the
shapes of Llama-3.1-8B, Qwen3-0.6B and SmolLM2-135M. Each part runs in a process of its own, so
that one that fails or hangs costs only its own figures. Prints a table, writes it as JSON with the
machine and the versions; exits 1 where a bar is missed or a part failed. --tiny shows on a CPU,
with TRITON_INTERPRET=1 and FOREBAY_KERNELS=triton, that all of it runs; its times say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PYTHONPATH = os.pathsep.join(
    [str(ROOT / "kernels"), str(ROOT / "runtime"), *os.environ.get("PYTHONPATH", "").split(":")]
).rstrip(":")


@dataclass(frozen=True)
class Part:
    """A module of gpu_parts, what its measure is told besides, and how long it may take."""

    module: str
    most_seconds: float
    argument: str | None = None

    @property
    def name(self) -> str:
        """By which --parts picks it."""
        return self.module if self.argument is None else f"{self.module}:{self.argument}"


PARTS = (
    Part("rates", 40),
    Part("numbers", 100),
    Part("attention", 60),
    Part("products", 60),
    Part("whole_model", 120, "Llama-3.1-8B"),
    Part("whole_model", 60, "Qwen3-0.6B"),
    Part("whole_model", 60, "SmolLM2-135M"),
    Part("starts", 60),
)
_LEAST_SECONDS = 15.0
"""In less a part does not even get through its imports and first compilations."""


def main() -> int:
    """Measure and print; 1 where a bar is missed or a part failed."""
    options = _parse(sys.argv[1:])
    if options.part:
        _run_part(next(part for part in PARTS if part.name == options.part), options)
        return 0
    _check(options)
    end = time.monotonic() + options.budget_seconds
    figures: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for part in PARTS:
        if options.parts and not {part.name, part.module} & {*options.parts}:
            continue
        left = end - time.monotonic()
        if left < _LEAST_SECONDS:
            failed[part.name] = "was not started: the time was up"
            continue
        # An interpreter is slow, and judged by nothing.
        seconds = left if options.tiny else min(left, part.most_seconds)
        came, problem = _in_a_process(part, figures, seconds, options)
        figures += came
        for figure in came:
            print(_line(figure), flush=True)
        if problem:
            failed[part.name] = problem
            print(f"{part.name}: {problem}", flush=True)
    _write(options.out, figures, failed, is_tiny=options.tiny)
    missed = [figure["name"] for figure in figures if figure["verdict"] == "MISSED"]
    print(f"{len(figures)} figures, {len(missed)} bars missed, {len(failed)} parts failed")
    return 1 if missed or failed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="where the JSON is written"
    )
    parser.add_argument(
        "--budget-seconds",
        type=float,
        default=345.0,
        metavar="SECONDS",
        help="for all parts together; what has not begun by then fails (%(default)s)",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=list(dict.fromkeys(name for part in PARTS for name in (part.module, part.name))),
        metavar="PART",
        help="which to run, of %(choices)s (all)",
    )
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="show on a CPU, with TRITON_INTERPRET=1 and FOREBAY_KERNELS=triton, that all of it "
        "runs; its times say nothing",
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _check(options: argparse.Namespace) -> None:
    """End at once for what would be found out after minutes: no GPU, or nowhere to write."""
    import torch

    if not options.tiny and not torch.cuda.is_available():
        sys.exit("gpu.py: torch sees no GPU; on a CPU only --tiny runs")
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"gpu.py: --out {options.out} cannot be written: {error.strerror}")


def _in_a_process(
    part: Part, figures: Sequence[dict[str, Any]], seconds: float, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], str]:
    """The part's figures as far as they came, and what went wrong, its notes first."""
    command = [sys.executable, __file__, "--part", part.name, "--out", str(options.out)]
    known = {figure["name"]: figure["value"] for figure in figures}
    process = subprocess.Popen(
        [*command, "--tiny"] if options.tiny else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": _PYTHONPATH, "PYTHONUNBUFFERED": "1"},
        # A part may start processes, whose output would be waited for after its end.
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(json.dumps(known), timeout=seconds)
        problem = "" if process.returncode == 0 else f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        problem = f"took more than {seconds:.0f} s"
    return _split(output, problem)


_MARK = "figure "


def _split(output: str, problem: str) -> tuple[list[dict[str, Any]], str]:
    lines = output.splitlines()
    came = [json.loads(line.removeprefix(_MARK)) for line in lines if line.startswith(_MARK)]
    others = [line for line in lines if not line.startswith(_MARK)]
    notes = [line for line in others if line.startswith("note ")]
    if problem:
        return came, "\n".join([problem, *notes, *others[-25:]])
    return came, "\n".join(notes)


def _run_part(part: Part, options: argparse.Namespace) -> None:
    """In the part's own process: write each figure as a line when it is there."""
    known = json.loads(sys.stdin.read())
    from gpu_parts.run import Run

    measure = import_module(f"gpu_parts.{part.module}").measure
    if part.argument is not None:
        measure = partial(measure, model=part.argument)
    for figure in measure(Run(options.tiny, known)):
        if options.tiny:
            # How slow an interpreter is says nothing of a kernel.
            figure = replace(figure, least=None)
        print(_MARK + json.dumps(figure.to_document()), flush=True)


def _line(figure: dict[str, Any]) -> str:
    bar = f"{figure['verdict']:7}" if figure["verdict"] else ""
    return f"{figure['name']:90} {figure['value']:12.4g} {figure['unit']:10} {bar}".rstrip()


def _write(
    path: Path, figures: Sequence[dict[str, Any]], failed: dict[str, str], *, is_tiny: bool
) -> None:
    document = {
        "is_tiny": is_tiny,
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": _machine(),
        "figures": figures,
        "failed": failed,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def _machine() -> dict[str, Any]:
    import torch
    import triton

    told = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        told |= {
            "gpu": properties.name,
            "gpu_memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": _driver(),
        }
    return told


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
