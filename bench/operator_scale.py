"""How fast the operator is, and what it costs, with 1,000 InferenceServices and 3,000 pods.

    python bench/operator_scale.py [--services 1000] [--folder FOLDER]

A real control plane runs on all cores but one, kwok plays nodes and pods, one server answers
`GET /load` for all of them, and the operator alone is pinned to the last core. Prints a table;
exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "tests/lib")]

from api_server import ApiServer  # noqa: E402
from audit import count_status_writes, count_writes, most_creates, read_audit  # noqa: E402
from chart import install_rights  # noqa: E402
from control_plane import add_node, start_control_plane  # noqa: E402
from fleet import SERVICES, Fleet, operate, watching  # noqa: E402
from operator_process import OperatorProcess, wait_until  # noqa: E402
from played_runtime import load, play_every_runtime  # noqa: E402
from process_usage import read_usage  # noqa: E402

PODS_PER_NODE = 150
NUM_EDITS = 200
EDITED_SECONDS = 1799
NUM_SCALING = 300
IDLE_SECONDS = 60.0
PATIENCE_SECONDS = 900.0
MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: str
    bar: str = ""
    is_met: bool = True


def main() -> int:
    """Measure and print; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where logs are kept")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # what was started ends with it
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:-1] or cores)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with start_control_plane(folder, install_rights) as server, play_every_runtime(load(1)):
            bench = Bench(server, Fleet(server, chosen.services), cores[-1])
            rows = bench.run()
    print_table(rows)
    return 0 if all(row.is_met for row in rows) else 1


def print_table(rows: list[Row]) -> None:
    """As Markdown."""
    print("| what | measured | bar |\n|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.measured} | {row.bar}{'' if row.is_met else ' **missed**'} |")


class Bench:
    """One run on one control plane."""

    def __init__(self, server: ApiServer, fleet: Fleet, core: int) -> None:
        self.server = server
        self.fleet = fleet
        self.core = core
        self.rows: list[Row] = []

    def run(self) -> list[Row]:
        """All phases, in order."""
        num_pods = self.fleet.num_services * self.fleet.num_replicas
        for number in range(num_pods // PODS_PER_NODE + 2):
            add_node(self.server, f"node-{number}")
        with self.operator("first") as operator:
            with watching(self.server, SERVICES, self.fleet.note):
                self.measure_start(operator)
                self.measure_edits()
            self.measure_idle(operator, "idle, all pods asked every 30 s", 2.0)
        with self.operator("second") as operator:
            self.measure_restart(operator)
            places = self.fleet.places()[:NUM_SCALING]
            bounds = {"minReplicas": 3, "maxReplicas": 4}
            for place in places:
                self.fleet.patch(place, {"replicas": None, "scaling": bounds})
            time.sleep(10)
            self.measure_idle(operator, f"{len(places)} services asked every 2 s", None)
        return self.rows

    @contextmanager
    def operator(self, name: str) -> Iterator[OperatorProcess]:
        """An operator on a core of its own."""
        with operate(self.server, self.server.folder, f"operator-{name}") as operator:
            for thread in os.listdir(f"/proc/{operator.process.pid}/task"):
                os.sched_setaffinity(int(thread), {self.core})
            yield operator

    def measure_start(self, operator: OperatorProcess) -> None:
        """From the first service applied until all are Ready, and quiet."""
        began_at, before = time.monotonic(), read_usage(operator.process.pid)
        self.fleet.create()
        self.fleet.wait_until_ready(PATIENCE_SECONDS)
        wall = time.monotonic() - began_at
        operator.wait_until_quiet(120)
        after = read_usage(operator.process.pid)
        cpu = after.cpu_seconds - before.cpu_seconds
        self.add("all Ready: CPU time of the operator", cpu, "s", 60.0)
        self.add("all Ready: wall time, control plane on the other core", wall, "s", None)
        self.add("peak memory", after.peak_bytes / MIB, "MiB", 256.0)
        asked = read_audit(self.server)
        self.add("creates of a child, at most", most_creates(asked), "", 1)
        counts = count_status_writes(asked)
        self.add("status writes of a service, median", statistics.median(counts), "", None)
        self.add("status writes of a service, at most", max(counts), "", 3)

    def measure_edits(self) -> None:
        """From before an edit is sent until its Deployment's event arrives.

        The edit is one that starts no pods: they would be the control plane's work, not ours.
        """
        seen: dict[str, float] = {}

        def note(_: str, item: dict[str, Any]) -> None:
            metadata = item["metadata"]
            if item["spec"].get("progressDeadlineSeconds") == EDITED_SECONDS:
                seen.setdefault(f"{metadata['namespace']}/{metadata['name']}", time.monotonic())

        delays = []
        edit = {"rollout": {"progressDeadlineSeconds": EDITED_SECONDS}}
        with watching(self.server, "/apis/apps/v1/deployments", note):
            for place in self.fleet.places()[:NUM_EDITS]:
                began_at, name = time.monotonic(), "/".join(place)
                self.fleet.patch(place, edit)
                wait_until(f"An edit of {name} arrives", lambda name=name: name in seen)  # type: ignore[misc]
                delays.append(seen[name] - began_at)
        centiles = statistics.quantiles(delays, n=100)
        self.add("an edit reaches the child, median", centiles[49], "s", 0.1)
        self.add("an edit reaches the child, p99", centiles[98], "s", 1.0)

    def measure_idle(self, operator: OperatorProcess, what: str, bar: float | None) -> None:
        """CPU time while nobody changes anything."""
        operator.wait_until_quiet(120)
        before = read_usage(operator.process.pid)
        time.sleep(IDLE_SECONDS)
        after = read_usage(operator.process.pid)
        share = (after.cpu_seconds - before.cpu_seconds) / IDLE_SECONDS * 100
        self.add(f"{what}: share of a core", share, "%", bar)

    def measure_restart(self, operator: OperatorProcess) -> None:
        """From the lease until every service was looked at, with nothing to do."""
        began_at, num_before = time.monotonic(), num_writes(self.server)
        wait_until(
            "Every service was looked at",
            lambda: (
                operator.metrics().sum("reconcile_duration_seconds_count", outcome="done")
                >= self.fleet.num_services
            ),
            PATIENCE_SECONDS,
        )
        operator.wait_until_quiet(120)
        self.add("restart until steady", time.monotonic() - began_at, "s", 30.0)
        usage = read_usage(operator.process.pid)
        self.add("restart: CPU time", usage.cpu_seconds, "s", None)
        self.add("restart: peak memory", usage.peak_bytes / MIB, "MiB", 256.0)
        self.add("restart: writes", num_writes(self.server) - num_before, "", 0)

    def add(self, what: str, number: float, unit: str, bar: float | None) -> None:
        """Take a line into the table, and say it at once."""
        shown = f"{number:.3g} {unit}".strip() if number < 100 else f"{number:.0f} {unit}".strip()
        row = Row(what, shown, "" if bar is None else f"≤ {bar:g} {unit}".strip())
        self.rows.append(Row(row.what, row.measured, row.bar, bar is None or number <= bar))
        print(f"{what}: {shown}", file=sys.stderr, flush=True)


def num_writes(server: ApiServer) -> int:
    """The operator's, so far."""
    return count_writes(read_audit(server)).total()


if __name__ == "__main__":
    sys.exit(main())
