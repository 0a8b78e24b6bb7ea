"""What quantisation costs a real model: each method and group size beside what it was made from.

    python bench/quantization_quality.py [--cases gptq-64 awq-64] [--reference FOLDER] [--out FILE]

The reference is SmolLM2 off its own grid (tests/lib/noisy_smollm2.py), or any folder. Each case is
quantised by the command, in a process of its own whose time and memory are measured, and both are
evaluated on texts that are not the calibration's. Nothing here is held against a bound: the long
tests do that.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "e2e/lib"), str(ROOT / "tests/lib")]

from forebay_runtime.config import EngineConfig  # noqa: E402
from forebay_runtime.evaluating.answering import measure  # noqa: E402
from forebay_runtime.evaluating.golden import Golden, read_golden  # noqa: E402
from forebay_runtime.evaluating.measures import Measured, compare  # noqa: E402
from forebay_runtime.loading.description import describe_model  # noqa: E402
from noisy_smollm2 import save_noisy_smollm2  # noqa: E402

CALIBRATION = ROOT / "bench/evaluation/calibration.jsonl"
GOLDEN = ROOT / "bench/evaluation/golden.jsonl"
_CALIBRATED = ["--calibration", str(CALIBRATION), "--sequence-length", "256", "--device", "cpu"]


def _flags(method: str, group_size: int, *flags: str) -> list[str]:
    own = _CALIBRATED if method != "rtn" else []
    return ["--method", method, "--group-size", str(group_size), *own, *flags]


CASES: dict[str, list[str]] = {
    "rtn-8-64": _flags("rtn", 64, "--bits", "8"),
    "rtn-8-64-asymmetric": _flags("rtn", 64, "--bits", "8", "--no-symmetric"),
    "gptq-8-64": _flags("gptq", 64, "--bits", "8"),
    "rtn-64": _flags("rtn", 64),
    "rtn-32": _flags("rtn", 32),
    "awq-64": _flags("awq", 64),
    "awq-32": _flags("awq", 32),
    "gptq-64": _flags("gptq", 64),
    "gptq-64-symmetric": _flags("gptq", 64, "--symmetric"),
    "gptq-64-desc-act": _flags("gptq", 64, "--desc-act"),
    "gptq-32": _flags("gptq", 32),
}
"""Flags of `forebay quantize` by name. 128 inputs do not divide SmolLM2's 576."""


@dataclass(frozen=True)
class Made:
    """A case's folder, and what it took to make it."""

    seconds: float
    peak_bytes: int


def main() -> int:
    """Measure all cases; prints a row as soon as one is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--reference", type=Path, help="a folder; SmolLM2 with noise by default")
    parser.add_argument("--out", type=Path, help="where to write the table as well")
    parsed = parser.parse_args()
    lines = [
        "| case | perplexity | increase | same token | exact answers | seconds | peak RSS |",
        "|---|---|---|---|---|---|---|",
    ]
    golden = read_golden(GOLDEN)
    with tempfile.TemporaryDirectory() as folder:
        reference = parsed.reference or save_noisy_smollm2(Path(folder) / "reference")
        before = evaluate(reference, golden)
        lines.append(f"| as it is | {before.perplexity:.3f} | | | {before.num_right} | | |")
        print("\n".join(lines), flush=True)
        for name in parsed.cases:
            out = Path(folder) / name
            made = quantize(reference, out, CASES[name])
            lines.append(_row(name, made, evaluate(out, golden), before))
            print(lines[-1], flush=True)
    if parsed.out is not None:
        parsed.out.write_text("\n".join(lines) + "\n")
    return 0


def quantize(source: Path, out: Path, flags: list[str]) -> Made:
    """Run the command.

    Raises: ChildProcessError if it fails.
    """
    command = [sys.executable, "-m", "forebay_runtime.cli", "quantize", str(source), str(out)]
    start = time.monotonic()
    pid = os.posix_spawn(sys.executable, [*command, *flags], os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise ChildProcessError(f"forebay quantize {' '.join(flags)} ended with {status}")
    return Made(time.monotonic() - start, usage.ru_maxrss * 1024)


def evaluate(model: Path, golden: Golden) -> Measured:
    """Score the golden set, in float32."""
    config = EngineConfig(
        model,
        device="cpu",
        dtype="float32",
        max_model_len=1024,
        max_num_batched_tokens=1024,
        enable_prefix_caching=False,
    )
    return measure(config, describe_model(model), golden, 8, lambda *_: None)


def _row(name: str, made: Made, after: Measured, before: Measured) -> str:
    comparison = compare(after, before)
    cells = [
        name,
        f"{after.perplexity:.3f}",
        f"{comparison.perplexity_increase:+.2%}",
        f"{comparison.agreement:.1%}",
        f"{after.num_right}",
        f"{made.seconds:.0f}",
        f"{made.peak_bytes / 2**20:.0f} MiB",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
