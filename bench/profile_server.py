"""Where a server's time goes while it is loaded: its threads' functions, by samples.

    python bench/profile_server.py MODEL [--cases c1 c8 c32 prefix] [--forebay-flags "…"]

Samples are taken each 5 ms by a thread within the server, of what Python runs; native kernels show
as the function that called them. A thread that waits is not counted, so shares are of the time.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from serving.case import MAIN_CASES, Case
from serving.process_tree import signal_tree
from serving.recipes import forebay
from serving.rounds import line_of, run_case
from serving.server import Recipe, Server

_SAMPLED = Path(__file__).with_name("serving") / "sampled.py"


def main() -> int:
    """Profile each case, print a table for each."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in MAIN_CASES])
    parser.add_argument("--forebay-flags", default="", help="more flags, in one argument")
    parser.add_argument("--rows", type=int, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        flags = options.forebay_flags.split()
        recipe = build_recipe(forebay(options.model, "profiled", flags=flags), report)
        server = Server(recipe, Path(folder) / "log")
        try:
            server.wait_ready()
            for case in MAIN_CASES:
                if not options.cases or case.name in options.cases:
                    print("\n".join(profile(server, case, report, options.rows)), flush=True)
        finally:
            server.end()
    return 0


def build_recipe(recipe: Recipe, report: Path) -> Recipe:
    """The same server, sampled."""
    python, _, _, *rest = recipe.command
    return replace(recipe, command=(python, str(_SAMPLED), str(report), *rest))


def profile(server: Server, case: Case, report: Path, num_rows: int) -> list[str]:
    """A case's table."""
    report.unlink(missing_ok=True)
    signal_tree([server.pid], signal.SIGUSR1)
    sample = run_case(server, case, "profile")
    signal_tree([server.pid], signal.SIGUSR2)
    while not report.exists():
        time.sleep(0.01)
    return [f"\n## {case.name}: {line_of(sample)}", "", *table_of(read(report), num_rows)]


def read(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def table_of(found: dict[str, Any], num_rows: int) -> list[str]:
    """Markdown: each path's share of all samples."""
    lines = ["| share of the time | thread | functions |", "| ---: | --- | --- |"]
    for thread, path, count in found["counts"][:num_rows]:
        path = path.replace("forebay_", "").replace("<locals>.", "")
        lines.append(f"| {count / found['num_samples']:.1%} | {thread} | {path} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
