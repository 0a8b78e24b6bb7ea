"""Try to make the server slow on a CPU: what no single client does, and no roomy machine shows.

    python bench/stress_cpu.py MODEL [--loads NAME …] [--forebay-flags "--kv-cache-dtype int8"]

Each load has a server of its own, which is started before it and ended after it. Prints
throughput, percentiles of TTFT and TPOT, memory and errors; exits 1 if a request was not answered
whole. MODEL: what `forebay serve` takes, with a context of 8,192 tokens.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serving.case import Case
from serving.machine import describe_machine
from serving.recipes import Sizes, forebay
from serving.rounds import line_of, run_case
from serving.server import Recipe, Server
from serving.table import case_table

_SIZES = Sizes(max_model_len=8192, max_num_seqs=64, kv_bytes=2**30)
_SMALL_CACHE = ("--kv-cache-memory-bytes", str(512 * 2**20))


@dataclass(frozen=True)
class Load:
    """Cases that one server answers at the same time, and what it gets less of than usual."""

    name: str
    why: str
    cases: tuple[Case, ...]
    flags: tuple[str, ...] = ()
    num_cpus: int | None = None


_SHORT = Case("64 at a time", 64, 128)
_LONG = Case("long prompts", 4, 8, prompt_tokens=6000, output_tokens=64)
LOADS = (
    Load("many", "64 requests at a time", (_SHORT,)),
    Load("long", "prompts of 6,000 tokens, 4 at a time", (_LONG,)),
    Load(
        "shared",
        "a beginning of 2,000 tokens that all share",
        (Case("shared beginning", 16, 48, 64, 64, shared_tokens=2000),),
    ),
    Load(
        "mixed",
        "answers that go on while long prompts are read",
        (Case("short beside long", 8, 24, 128, 128), replace(_LONG, name="long beside short")),
    ),
    Load(
        "small-cache",
        "64 requests that a KV cache of 512 MiB cannot hold at once",
        (Case("more than fits", 64, 96, prompt_tokens=512, output_tokens=256),),
        flags=_SMALL_CACHE,
    ),
    Load(
        "one-cpu",
        "8 requests at a time on one CPU",
        (Case("one CPU", 8, 24),),
        num_cpus=1,
    ),
)


def main() -> int:
    """Run the loads one after the other; 1 if any request went wrong."""
    # So that servers are ended, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse_arguments()
    print("# Loads that try to make the server slow\n")
    print("\n".join(f"- {name}: {value}" for name, value in describe_machine().items()))
    num_wrong = 0
    for load in LOADS:
        if options.loads and load.name not in options.loads:
            continue
        if options.quick:
            load = replace(load, cases=tuple(case.shortened() for case in load.cases))
        recipe = build_recipe(options.model, load, options.forebay_flags.split())
        ready_seconds, samples = run_load(recipe, load)
        print(f"\n## {load.name}: {load.why}\n\nReady after {ready_seconds:.1f} s.\n", flush=True)
        for case in load.cases:
            print(f"**{case.name}**: {case.title}, {case.num_requests} requests\n")
            rows = case_table(case.name, {load.name: {case.name: [samples[case.name]]}})
            print("\n".join(rows) + "\n", flush=True)
        wrong = [sample["num_errors"] + sample["num_short"] for sample in samples.values()]
        num_wrong += sum(wrong)
    print("Every request was answered whole." if num_wrong == 0 else f"{num_wrong} went wrong.")
    return 1 if num_wrong else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--loads", nargs="+", choices=[load.name for load in LOADS])
    parser.add_argument("--quick", action="store_true", help="few requests of each")
    parser.add_argument("--forebay-flags", default="", help="more flags, in one argument")
    return parser.parse_args()


def build_recipe(model: Path, load: Load, flags: list[str]) -> Recipe:
    """The server of a load; the last of several flags of one name is what counts."""
    recipe = forebay(model, load.name, _SIZES, (*load.flags, *flags))
    if load.num_cpus is None:
        return recipe
    cpus = sorted(os.sched_getaffinity(0))[: load.num_cpus]
    bound = ("taskset", "--cpu-list", ",".join(map(str, cpus)))
    return replace(recipe, command=(*bound, *recipe.command))


def run_load(recipe: Recipe, load: Load) -> tuple[float, dict[str, dict[str, Any]]]:
    """The seconds to ready, and each case's figures."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(recipe, Path(folder) / "log")
        try:
            ready_seconds = server.wait_ready()
            with ThreadPoolExecutor(len(load.cases)) as pool:
                running = [pool.submit(run_case, server, case, "0") for case in load.cases]
                samples = {
                    case.name: future.result()
                    for case, future in zip(load.cases, running, strict=True)
                }
        finally:
            server.end()
    for name, sample in samples.items():
        print(f"{name}: {line_of(sample)}", file=sys.stderr, flush=True)
    return ready_seconds, samples


if __name__ == "__main__":
    sys.exit(main())
