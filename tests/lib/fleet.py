"""Many InferenceServices at once on a played control plane: made, watched and waited for."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any

from api_server import ApiServer, trust
from operator_process import OperatorProcess, run_operator, wait_until

SERVICES = "/apis/forebay.dev/v1alpha1/inferenceservices"
NUM_WRITERS = 4


@dataclass
class Fleet:
    """Services named `fleet-…` over a few namespaces, and which of them are Ready."""

    server: ApiServer
    num_services: int
    num_namespaces: int = 10
    num_replicas: int = 3
    ready: set[str] = field(default_factory=set)
    """Namespace/name."""

    def places(self) -> list[tuple[str, str]]:
        """Namespace and name of each."""
        return [
            (f"fleet-{number % self.num_namespaces}", f"fleet-{number}")
            for number in range(self.num_services)
        ]

    def namespaces(self) -> list[str]:
        """Those that the services are spread over."""
        return [f"fleet-{number}" for number in range(self.num_namespaces)]

    def create(self) -> None:
        """Create the namespaces and every service in them."""
        for namespace in self.namespaces():
            self.server.kubectl("create", "namespace", namespace)
        self._for_each(self._create)

    def wait_until_ready(self, seconds: float) -> None:
        """Wait for all; the watch must have been begun."""
        wait_until(
            "Every service of the fleet is Ready",
            lambda: len(self.ready) == self.num_services,
            seconds,
        )

    def patch(self, place: tuple[str, str], spec: dict[str, Any]) -> None:
        """Merge into a service's spec."""
        kind = "application/merge-patch+json"
        status, answer = self.server.request("PATCH", _path(*place), {"spec": spec}, kind)
        if status != 200:
            raise RuntimeError(answer["message"])

    def note(self, event: str, service: dict[str, Any]) -> None:
        """Take in what a watch of services delivers."""
        metadata, status = service["metadata"], service.get("status") or {}
        is_ready = any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in status.get("conditions") or ()
        )
        change = self.ready.add if is_ready and event != "DELETED" else self.ready.discard
        change(f"{metadata['namespace']}/{metadata['name']}")

    def _for_each(self, action: Callable[[tuple[str, str]], None]) -> None:
        with ThreadPoolExecutor(NUM_WRITERS) as pool:
            list(pool.map(action, self.places()))

    def _create(self, place: tuple[str, str]) -> None:
        namespace, name = place
        manifest = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "model": {"uri": "oci://localhost/smollm2:q4_1"},
                "device": "CPU",
                "replicas": self.num_replicas,
            },
        }
        status, answer = self.server.request("POST", _path(namespace), manifest)
        if status != 201:
            raise RuntimeError(answer["message"])


@contextmanager
def operate(server: ApiServer, folder: Path, name: str) -> Iterator[OperatorProcess]:
    """An operator for all namespaces, under its own account, that leads; it logs to `folder`."""
    account = ("forebay-operator", "-n", "forebay-system", "--duration=2h")
    token = server.kubectl("create", "token", *account).stdout.strip()
    kubeconfig = server.kubeconfig_with_token(name, token)
    with run_operator(kubeconfig, folder / f"{name}.log") as operator:
        operator.wait_for("Lease was acquired")
        yield operator


@contextmanager
def watching(
    server: ApiServer, path: str, notice: Callable[[str, dict[str, Any]], None]
) -> Iterator[None]:
    """Have each event of a watch handed over, in a thread, while the block runs."""
    listed = server.request("GET", f"{path}?limit=1")[1]
    version = listed["metadata"]["resourceVersion"]
    address = f"{server.url}{path}?watch=1&resourceVersion={version}&timeoutSeconds=3600"
    answer: HTTPResponse = urllib.request.urlopen(address, context=trust(server.folder))
    thread = Thread(target=_follow, args=(answer, notice), daemon=True)
    thread.start()
    try:
        yield
    finally:
        if answer.fp is not None:
            answer.fp.raw._sock.shutdown(2)  # type: ignore[attr-defined]
        thread.join(10)
        answer.close()


def _follow(answer: HTTPResponse, notice: Callable[[str, dict[str, Any]], None]) -> None:
    for line in answer:
        event = json.loads(line)
        notice(event["type"], event["object"])


def _path(namespace: str, name: str = "") -> str:
    root = f"/apis/forebay.dev/v1alpha1/namespaces/{namespace}/inferenceservices"
    return f"{root}/{name}" if name else root
