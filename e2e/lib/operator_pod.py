"""The running operator, and how the tests end it: by SIGKILL, as a crash does, or by scaling it."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from cluster_api import ClusterApi, Object, path_of, wait_until
from deployment import NAMESPACE, OPERATOR
from idle_pod import build_idle_pod
from namespace import Namespace

KILLER = "operator-killer"
# A process cannot be killed from inside its own container (it is that container's init), so the
# killer shares the node's process table, and finds the pod's processes by the uid in their cgroup.
KILL_SCRIPT = """
import os, pathlib, signal, sys
names = {sys.argv[1], sys.argv[1].replace("-", "_")}
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        command = (process / "cmdline").read_bytes().split(b"\\0")
        cgroup = (process / "cgroup").read_text()
    except OSError:
        continue
    if b"forebay_operator.main" in command and any(name in cgroup for name in names):
        os.kill(int(process.name), signal.SIGKILL)
        print(process.name)
"""


def read_operator(api: ClusterApi) -> Object:
    """Return the operator's Deployment."""
    found = api.get(path_of("deployments", NAMESPACE, OPERATOR))
    assert found is not None, "the operator is not installed on this cluster; run `make cluster`"
    return found


def read_operator_image(api: ClusterApi) -> str:
    """Return the operator's image, which holds a Python for the tests' own pods."""
    containers = read_operator(api)["spec"]["template"]["spec"]["containers"]
    image: str = containers[0]["image"]
    return image


class OperatorPod:
    """The operator's pod, whichever it is at the moment."""

    def __init__(self, namespace: Namespace) -> None:
        self._api = namespace.api
        self._kubectl = namespace.cluster_kubectl
        self._namespace = namespace
        """Where the killer lives."""

    def pods(self) -> list[Object]:
        """Return its pods that are not being deleted."""
        labels = read_operator(self._api)["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        pods = self._api.list(path_of("pods", NAMESPACE), selector)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def kill(self) -> None:
        """End its process by SIGKILL, and its pod, so that no crash back-off delays the next."""
        for pod in self.pods():
            self._killer_on(pod["spec"]["nodeName"])
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            script = ("exec", KILLER, "--", "python3", "-c", KILL_SCRIPT, uid)
            assert self._namespace.kubectl(*script), f"no process of {name} was there to be killed"
            delete = ("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
            self._kubectl("--namespace", NAMESPACE, *delete)

    def wait_leading(self) -> None:
        """Wait until a pod of it holds the Lease: only then is there work that a kill cuts off."""

        def is_held(lease: Object | None) -> bool:
            pods = {pod["metadata"]["name"] for pod in self.pods()}
            return lease is not None and lease["spec"].get("holderIdentity") in pods

        path = path_of("leases", NAMESPACE, OPERATOR)
        wait_until(lambda: self._api.get(path), is_held, "the operator is at work", 120)

    @contextmanager
    def killed_now_and_then(self, num_kills: int, most_seconds: float) -> Iterator[None]:
        """Kill it `num_kills` times while the block runs, each at a random moment of its life."""
        seed = random.randrange(2**32)
        print(f"moments of the kills come from seed {seed}")
        moments = random.Random(seed)

        def keep_killing() -> None:
            for _ in range(num_kills):
                time.sleep(moments.uniform(0, most_seconds))
                self.kill()
                self.wait_leading()

        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(keep_killing)
            yield
            killing.result()

    @contextmanager
    def absent(self) -> Iterator[None]:
        """Run the block without any operator."""
        self._scale(0)
        wait_until(self.pods, lambda pods: not pods, "the operator is gone", 120)
        try:
            yield
        finally:
            self._scale(1)
            self.wait_leading()

    def _scale(self, replicas: int) -> None:
        target = f"deployment/{OPERATOR}"
        self._kubectl("--namespace", NAMESPACE, "scale", f"--replicas={replicas}", target)

    def _killer_on(self, node: str) -> None:
        if self._namespace.get("pods", KILLER) is None:
            self._namespace.apply(build_killer(read_operator_image(self._api), node))
        self._namespace.wait_for("pods", KILLER, _is_running, "running")


def build_killer(image: str, node: str) -> Object:
    """Return a pod that sees the processes of its node."""
    pod = build_idle_pod(KILLER, image, node)
    pod["spec"]["hostPID"] = True
    return pod


def _is_running(pod: Object) -> bool:
    phase: str = pod["status"]["phase"]
    return phase == "Running"
