"""A stage for a story of faults: a namespace of its own on the control plane, a fault proxy before
the API server, and operators that only know the proxy."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api_server import ApiServer
from fault_proxy import FaultProxy
from operator_process import OperatorProcess, run_operator, wait_until
from picture import differences, take_picture
from played_node import PlayedNode

SPEC = {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU", "replicas": 2}
USER = "faulted-operator"


@dataclass
class Stage:
    """One story's namespace, proxy and operators."""

    node: PlayedNode
    proxy: FaultProxy
    folder: Path
    token: str
    lease_namespace: str = ""
    """The story's own where it says nothing."""
    undisturbed: dict[str, Any] = field(default_factory=dict)

    def start(
        self, name: str = "operator-1", proxy: FaultProxy | None = None, **constants: Any
    ) -> AbstractContextManager[OperatorProcess]:
        """Start an operator; `constants` of its modules are written with "__" for "."."""
        kubeconfig = self.node.server.kubeconfig_with_token(
            f"{self.node.namespace}-{name}", self.token, (proxy or self.proxy).url
        )
        dotted = {key.replace("__", "."): value for key, value in constants.items()}
        named = {
            key if key.startswith("kubernetes.") else f"forebay_operator.{key}": value
            for key, value in dotted.items()
        }
        return run_operator(
            kubeconfig,
            self.folder / name,
            namespaces=(self.node.namespace,),
            name=name,
            lease_namespace=self.lease_namespace or self.node.namespace,
            constants=named,
        )

    @contextmanager
    def keep_running(self, name: str = "operator-1", **constants: Any) -> Iterator[list[int]]:
        """Play the kubelet: start an operator, and another whenever one ended; their ends."""
        ends: list[int] = []
        is_over = threading.Event()

        def run() -> None:
            while not is_over.is_set():
                with self.start(name, **constants) as operator:
                    while operator.process.poll() is None and not is_over.is_set():
                        time.sleep(0.05)
                ends.append(operator.process.returncode)

        thread = threading.Thread(target=run, name="played kubelet")
        thread.start()
        try:
            yield ends
        finally:
            is_over.set()
            thread.join()

    def apply(self, **changes: Any) -> None:
        """Apply the service, with fields of its spec changed."""
        manifest = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "smollm2"},
            "spec": SPEC | changes,
        }
        arguments = ("apply", "-n", self.node.namespace, "-f", "-")
        self.node.server.kubectl(*arguments, stdin=json.dumps(manifest))

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the story's namespace."""
        return self.node.server.kubectl("-n", self.node.namespace, *arguments).stdout

    def settle(self) -> None:
        """Apply the service, and wait until it is as undisturbed as can be."""
        self.apply()
        self.wait_ready()
        self.expect_undisturbed()

    def wait_ready(self) -> None:
        """Wait until the service says that it is ready."""
        wait_until("Ready", lambda: self.node.condition("smollm2", "Ready").get("status") == "True")

    def expect_undisturbed(self) -> None:
        """Wait until everything is as it is where nothing went wrong; say what is not."""
        seen: list[list[str]] = []

        def is_same() -> bool:
            seen.append(differences(take_picture(self.node), self.undisturbed))
            return not seen[-1]

        try:
            wait_until("The undisturbed picture", is_same)
        except AssertionError as error:
            raise AssertionError("\n".join(seen[-1])) from error


def create_account(server: ApiServer) -> None:
    """An account for operators, which may do everything."""
    server.kubectl("create", "serviceaccount", USER)
    account = f"--serviceaccount=default:{USER}"
    server.kubectl("create", "clusterrolebinding", USER, "--clusterrole=cluster-admin", account)


def build_stage(server: ApiServer, namespace: str, proxy: FaultProxy, folder: Path) -> Stage:
    server.kubectl("create", "namespace", namespace)
    token = server.kubectl("create", "token", USER, "--duration=1h").stdout.strip()
    return Stage(PlayedNode(server, namespace), proxy, folder, token)


def is_ended(operator: OperatorProcess) -> bool:
    """Whether an operator's process is over."""
    return operator.process.poll() is not None
