"""Compare the engine with transformers on this machine: one model, float32, on the CPU.

    python bench/against_transformers.py [MODEL.gguf] [--rounds N] [--clock wall|cpu]

Runs of both alternate in one process with the same threads, so that a busy neighbour hits both, and
what is compared are medians of each round's ratio. `--clock cpu` counts processor seconds, which a
busy neighbour hardly changes, but which do not reward threads. Exits 1 where the engine is below
the bar.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay_kernels.usable_cpus import usable_cpus
from forebay_runtime.start.threads import prepare_libraries

prepare_libraries()

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "e2e/lib"), str(ROOT / "tests/lib")]

import torch  # noqa: E402
from gguf import GGUFReader  # noqa: E402

from forebay_runtime.assembly import build_engine  # noqa: E402
from forebay_runtime.config import EngineConfig  # noqa: E402
from forebay_runtime.engine import Engine  # noqa: E402
from forebay_runtime.request import Request, SamplingParams  # noqa: E402
from smollm2 import smollm2_path  # noqa: E402
from transformers_oracle import load_llama  # noqa: E402

NUM_CONCURRENT = 8
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
Run = Callable[[], float]


@dataclass(frozen=True)
class Bar:
    """A ratio that a release must reach."""

    name: str
    ours: str
    theirs: str
    least_ratio: float


BARS = (
    Bar("one request", "engine, 1", "transformers, 1", 1.0),
    Bar("8 requests over transformers' one", "engine, 8", "transformers, 1", 3.0),
    Bar("8 requests over transformers' batch of 8", "engine, 8", "transformers, 8", 1.0),
)


def main() -> int:
    """Print a table of rates and ratios; 1 where a ratio is below its bar."""
    args = parse_arguments()
    torch.set_num_threads(usable_cpus())
    runs = build_runs(args)
    for run in runs.values():
        run()
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, run in runs.items():
            rates[name].append(run())
    print_rates(rates)
    return 0 if print_ratios(rates) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=None, help="a GGUF file (SmolLM2)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=48)
    args = parser.parse_args()
    args.model = args.model or smollm2_path()
    return args


def build_runs(args: argparse.Namespace) -> dict[str, Run]:
    """The four runs; each gives its tokens a second."""
    engine = build_engine(
        EngineConfig(args.model, device="cpu", dtype="float32", max_model_len=2048)
    )
    engine.warm_up()
    model = load_llama(GGUFReader(args.model))
    model.generation_config.eos_token_id = None
    chance = random.Random(0)
    prompts = [
        [chance.randrange(engine.vocab_size) for _ in range(args.prompt_tokens)]
        for _ in range(NUM_CONCURRENT)
    ]
    return {
        f"{name}, {number}": (
            lambda answer=answer, number=number: measure(
                lambda: answer(prompts[:number], args.new_tokens),
                number * args.new_tokens,
                CLOCKS[args.clock],
            )
        )
        for number in (1, NUM_CONCURRENT)
        for name, answer in (
            ("transformers", lambda *asked: answer_by_transformers(model, *asked)),
            ("engine", lambda *asked: answer_by_engine(engine, *asked)),
        )
    }


def measure(answer: Callable[[], None], num_tokens: int, clock: Callable[[], float]) -> float:
    """Tokens a second."""
    start = clock()
    answer()
    return num_tokens / (clock() - start)


def answer_by_engine(engine: Engine, prompts: list[list[int]], num_tokens: int) -> None:
    sampling = SamplingParams(num_tokens, temperature=0, ignore_eos=True)
    for index, prompt in enumerate(prompts):
        engine.add(Request(str(index), prompt, sampling))
    while engine.has_work:
        engine.step()


def answer_by_transformers(model: Any, prompts: list[list[int]], num_tokens: int) -> None:
    token_ids = torch.tensor(prompts)
    with torch.inference_mode():
        model.generate(
            token_ids,
            attention_mask=torch.ones_like(token_ids),
            do_sample=False,
            max_new_tokens=num_tokens,
            pad_token_id=0,
        )


def print_rates(rates: dict[str, list[float]]) -> None:
    print(f"{'tokens a second, float32':<44}{'median':>9}{'least':>9}{'most':>9}")
    for name, seen in rates.items():
        print(f"{name:<44}{statistics.median(seen):>9.1f}{min(seen):>9.1f}{max(seen):>9.1f}")


def print_ratios(rates: dict[str, list[float]]) -> bool:
    """Print each bar's median ratio; true if all are reached."""
    print(f"\n{'ratio, median of rounds':<44}{'ratio':>9}{'bar':>9}")
    all_reached = True
    for bar in BARS:
        pairs = zip(rates[bar.ours], rates[bar.theirs], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        is_reached = ratio >= bar.least_ratio
        all_reached &= is_reached
        verdict = "reached" if is_reached else "BELOW"
        print(f"{bar.name:<44}{ratio:>9.2f}{bar.least_ratio:>9.2f}  {verdict}")
    return all_reached


if __name__ == "__main__":
    sys.exit(main())
