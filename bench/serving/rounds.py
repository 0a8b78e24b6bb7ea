"""Runs servers interleaved: all are up, one at a time is awake, and each round begins at another.

A machine drifts, by its neighbours and its clock. So each case is run by all servers one after the
other before the next case is, with the same prompts, and what is compared are ratios within a
round. Prompts of no two rounds are alike, so that no cache answers them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from serving.case import Case
from serving.figures import summarise
from serving.server import Recipe, Server, ServerError
from serving.watch import Watch

_CLIENT = Path(__file__).with_name("client.py")
_QUICK_START_SECONDS = 15.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Servers that are measured in one run, by the same cases."""

    name: str
    recipes: Sequence[Recipe]
    cases: Sequence[Case]


@dataclass(frozen=True)
class Effort:
    """How often: rounds of all cases, starts of a server that is ready soon, tries of a case.

    A case is tried again where other programs took more than quiet_cores, and its quietest try
    stands.
    """

    num_rounds: int = 3
    num_starts: int = 3
    num_tries: int = 2
    quiet_cores: float = 0.15


@dataclass
class Measured:
    """What a group's servers showed: samples by server and case, one for each round."""

    ready_seconds: dict[str, list[float]] = field(default_factory=dict)
    samples: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)

    def add(self, server: str, case: str, sample: dict[str, Any]) -> None:
        """Keep one round's figures."""
        self.samples.setdefault(server, {}).setdefault(case, []).append(sample)


def rotated(names: Sequence[str], round_index: int) -> list[str]:
    """The order of a round: each server is first once before any is again."""
    shift = round_index % len(names) if names else 0
    return [*names[shift:], *names[:shift]]


def measure(group: Group, effort: Effort, say: Say) -> Measured:
    """Start all servers of a group, run all rounds, end them; one that does not start is left out.

    Raises: ChildProcessError if the client fails.
    """
    measured = Measured()
    servers: dict[str, Server] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for recipe in group.recipes:
                try:
                    server, seconds = _start(recipe, Path(folder), effort.num_starts)
                except ServerError as problem:
                    say(f"Left out: {problem}")
                    continue
                servers[recipe.name] = server
                measured.ready_seconds[recipe.name] = seconds
                say(f"{recipe.name}: ready after " + ", ".join(f"{s:.1f} s" for s in seconds))
                server.pause()
            for index in range(effort.num_rounds):
                _run_round(group.cases, servers, (index, effort), measured, say)
        finally:
            for server in servers.values():
                server.end()
    return measured


def _start(recipe: Recipe, folder: Path, num_starts: int) -> tuple[Server, list[float]]:
    """A ready server, and the seconds of each start; one that takes long is started once."""
    seconds: list[float] = []
    while True:
        server = Server(recipe, folder / f"{recipe.name}.log")
        try:
            seconds.append(server.wait_ready())
        except BaseException:
            server.end()
            raise
        if len(seconds) >= num_starts or seconds[-1] > _QUICK_START_SECONDS:
            return server, seconds
        server.end()


def _run_round(
    cases: Iterable[Case],
    servers: dict[str, Server],
    turn: tuple[int, Effort],
    measured: Measured,
    say: Say,
) -> None:
    index, effort = turn
    for case in cases:
        for name in rotated([*servers], index):
            server = servers[name]
            server.resume()
            try:
                sample = quietest(server, case, str(index), effort)
            finally:
                server.pause()
            measured.add(name, case.name, sample)
            say(f"round {index + 1}, {case.name}, {name}: {line_of(sample)}")


def quietest(server: Server, case: Case, seed: str, effort: Effort) -> dict[str, Any]:
    """The figures of the try that others disturbed least."""
    tries: list[dict[str, Any]] = []
    while len(tries) < effort.num_tries:
        tries.append(run_case(server, case, f"{seed}.{len(tries)}"))
        if tries[-1]["other_cores"] + tries[-1]["stolen_cores"] <= effort.quiet_cores:
            break
    return min(tries, key=lambda sample: sample["other_cores"] + sample["stolen_cores"])


def run_case(server: Server, case: Case, seed: str) -> dict[str, Any]:
    """Load a server that is awake; the case's figures, and what the server took meanwhile.

    Raises: ChildProcessError with what the client said, where it fails itself.
    """
    command = [sys.executable, str(_CLIENT), str(server.port), json.dumps(asdict(case)), seed]
    with Watch(server.pid) as watch:
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ChildProcessError(f"{server.recipe.name}, {case.name}: {done.stderr[-1_000:]}")
    return summarise(json.loads(done.stdout), case.output_tokens) | asdict(watch.seen)


def line_of(sample: dict[str, Any]) -> str:
    """A sample in a line, while it is measured."""
    parts = [f"{sample['output_tokens_per_s']:.1f} tok/s"]
    if "ttft_p50_ms" in sample:
        parts += [f"TTFT {sample['ttft_p50_ms']:.0f} ms"]
    if "tpot_p50_ms" in sample:
        parts += [f"TPOT {sample['tpot_p50_ms']:.1f} ms"]
    parts += [f"RSS {sample['peak_rss_bytes'] / 2**20:.0f} MiB"]
    parts += [f"others {sample['other_cores'] + sample['stolen_cores']:.2f} cores"]
    if sample["num_errors"]:
        parts += [f"{sample['num_errors']} ERRORS, {sample['first_error']}"]
    if sample["num_short"]:
        parts += [f"{sample['num_short']} answers of another length"]
    return ", ".join(parts)
