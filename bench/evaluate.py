"""Evaluate a served model with lm-eval (local-completions), as anybody would, without patches.

    python bench/evaluate.py [MODEL.gguf]

Starts `forebay serve` with the model (SmolLM2 if none is given) and one small task whose questions
lie beside this file. lm-eval has an environment of its own. Exits 1 where the model answers less
than nine tenths of them right (SmolLM2 answers all).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "e2e/lib"), str(ROOT / "tests/lib")]

from environments import make_environment  # noqa: E402
from home import HOME  # noqa: E402
from server_process import running  # noqa: E402
from smollm2 import smollm2_path  # noqa: E402

TASKS = ROOT / "bench/evaluation"
ENVIRONMENT = HOME / "lm-eval"
LEAST_ACCURACY = 0.9
MAX_MODEL_LEN = 512
FLAGS = ["--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--lame-duck-seconds", "0"]
FLAGS += ["--served-model-name", "evaluated", "--max-model-len", str(MAX_MODEL_LEN)]


def main() -> int:
    """Serve, evaluate, print; 1 below the least accuracy."""
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else smollm2_path()
    make_environment(ENVIRONMENT, "lm_eval[api]")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "forebay_runtime.cli", "serve", str(model), *FLAGS]
        with running(command, Path(folder) / "termination-log") as server:
            server.wait_ready()
            results = evaluate(server.url, Path(folder))
    accuracy = results["results"]["forebay_capitals"]["acc,none"]
    print(f"accuracy {accuracy:.3f}, at least {LEAST_ACCURACY}")
    return 0 if accuracy >= LEAST_ACCURACY else 1


def evaluate(url: str, folder: Path) -> dict[str, Any]:
    """Run lm-eval on the tasks; returns what it wrote."""
    arguments = {
        "model": "evaluated",
        "base_url": f"{url}/v1/completions",
        "num_concurrent": 4,
        "max_length": MAX_MODEL_LEN,
    }
    command = [
        ENVIRONMENT / "bin/lm_eval",
        "run",
        *("--model", "local-completions"),
        *("--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())),
        *("--include_path", TASKS),
        *("--tasks", "forebay_capitals"),
        *("--output_path", folder / "results"),
    ]
    subprocess.run(command, cwd=TASKS, check=True)
    (written,) = (folder / "results").rglob("results_*.json")
    results: dict[str, Any] = json.loads(written.read_text())
    return results


if __name__ == "__main__":
    sys.exit(main())
