"""The operator as it runs in a cluster: a `kopf run` process of its own against a test's API
server."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from free_ports import free_ports
from operator_metrics import OperatorMetrics, read_operator_metrics

WAIT_SECONDS = 60.0
"""Long, as a wait that ends well costs nothing, and machines are shared."""
QUIET_SECONDS = 3.0
_TOLD_CHARS = 5000

T = TypeVar("T")


@dataclass
class OperatorProcess:
    """A running operator and what it has logged."""

    process: subprocess.Popen[bytes]
    log_path: Path
    liveness: str
    """Where the kubelet asks whether it lives; kopf keeps an answer for ten seconds."""

    @property
    def log(self) -> str:
        """Everything logged so far."""
        return self.log_path.read_text()

    def wait_for(self, words: str) -> None:
        """Wait until it has logged something; if it does not, have it say where it hangs."""
        try:
            wait_until(f"The operator logs {words!r}", lambda: words in self.log)
        except AssertionError as error:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"{error}\n{self.log[-_TOLD_CHARS:]}") from error

    def metrics(self) -> OperatorMetrics:
        """What it counts now, asked over HTTP."""
        self.wait_for("Metrics are served")
        port = re.findall(r"Metrics are served port=(\d+)", self.log)[-1]
        return read_operator_metrics(f"http://127.0.0.1:{port}/metrics")

    def is_alive(self, patience_seconds: float = WAIT_SECONDS) -> bool:
        """What a liveness probe finds; no answer in time is a failure as well."""
        try:
            with urllib.request.urlopen(self.liveness, timeout=patience_seconds):
                return True
        except OSError:
            return False

    def wait_until_quiet(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until nothing is due or in work, at two moments a little apart."""

        def is_quiet() -> bool:
            found = self.metrics()
            return found.value("queue_depth") == found.value("longest_work_seconds") == 0

        def is_quiet_twice() -> bool:
            if not is_quiet():
                return False
            time.sleep(QUIET_SECONDS)
            return is_quiet()

        wait_until("Nothing is due", is_quiet_twice, seconds)

    def num_reconciles(self) -> float:
        """How many it has carried out."""
        return self.metrics().sum("reconcile_duration_seconds_count", outcome="done")

    def stop(self) -> int:
        """End it as the kubelet does; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()


@contextmanager
def run_operator(
    kubeconfig: Path,
    log_path: Path,
    namespaces: tuple[str, ...] = (),
    name: str = "operator-1",
    lease_namespace: str = "forebay-system",
    constants: Mapping[str, object] | None = None,
) -> Iterator[OperatorProcess]:
    """Start an operator for all namespaces, or for some, and end it with the block.

    `constants` are set in its modules before anything runs: `package.module.NAME` to value.
    """
    scope = [flag for one in namespaces for flag in ("-n", one)] or ["-A"]
    modules = ["-m", "shortened_waits", "-m", "forebay_operator.main"]
    liveness = f"http://127.0.0.1:{free_ports(1)[0]}/healthz"
    command = [sys.executable, "-m", "kopf", "run", *scope, f"--liveness={liveness}", *modules]
    environ = {
        "KUBECONFIG": str(kubeconfig),
        "FOREBAY_RUNTIME_IMAGE": "localhost/forebay-runtime:test",
        "FOREBAY_OPERATOR_IMAGE": "localhost/forebay-operator:test",
        "FOREBAY_WATCH_NAMESPACES": ",".join(namespaces),
        "FOREBAY_METRICS_PORT": "127.0.0.1:0",
        "POD_NAME": name,
        "POD_NAMESPACE": lease_namespace,
        "FOREBAY_TEST_CONSTANTS": json.dumps(constants or {}),
        "PYTHONPATH": os.pathsep.join(
            (str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
        ),
        "PYTHONWARNINGS": "default",
        "PYTHONFAULTHANDLER": "1",
    }
    with run_command(command, environ, log_path, liveness) as running:
        yield running


@contextmanager
def run_command(
    command: Sequence[str], environ: Mapping[str, str], log_path: Path, liveness: str
) -> Iterator[OperatorProcess]:
    """Start an operator by a command, with more variables than the test's own, and end it."""
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            command, env=os.environ | environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    running = OperatorProcess(process, log_path, liveness)
    try:
        yield running
    except AssertionError as error:
        error.add_note(f"The operator's log ends so:\n{running.log[-_TOLD_CHARS:]}")
        raise
    finally:
        if process.poll() is None:
            running.stop()


def wait_until(what: str, check: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """Ask until the answer is truthy and return it; say what did not happen otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s, last answer {answer!r}")
        time.sleep(0.1)
