"""A namespace's budget of VRAM on a real control plane: who starts, who waits, and what heals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import run_operator, wait_until
from played_node import PlayedNode

pytestmark = pytest.mark.component

GPU = {
    "model": {"uri": "oci://localhost/smollm2:q4_1"},
    "vram": {"budget": "40Gi", "gpuMemory": "80Gi"},
}


class Namespace(PlayedNode):
    """A namespace with a budget."""

    def ask(self, name: str, **spec: Any) -> None:
        """Create an InferenceService of 40 GiB a replica."""
        kind = {"apiVersion": "forebay.dev/v1alpha1", "kind": "InferenceService"}
        manifest = {**kind, "metadata": {"name": name}, "spec": {**GPU, **spec}}
        self.create("inferenceservices", manifest)

    def change(self, plural: str, name: str, **spec: Any) -> None:
        """Edit a spec."""
        kind = "application/merge-patch+json"
        status, item = self.server.request("PATCH", self.path(plural, name), {"spec": spec}, kind)
        assert status == 200, item

    def ready(self, name: str) -> tuple[str, str]:
        """Status and reason of Ready."""
        found = self.condition(name, "Ready")
        return found.get("status", ""), found.get("reason", "")

    def quota(self) -> dict[str, Any]:
        """The quota's status."""
        return dict((self.get("vramquotas", "gpus") or {}).get("status") or {})

    def holders(self) -> dict[str, str]:
        """What is granted, by service."""
        return {one["name"]: one["granted"] for one in self.quota().get("services") or ()}

    def pods(self) -> set[str]:
        """Uids of the serving pods."""
        serving = (
            one
            for one in self.list("pods")
            if "forebay.dev/inference-service" in one["metadata"]["labels"]
        )
        return {one["metadata"]["uid"] for one in serving}


READY = ("True", "AllReplicasReady")
WAITS = ("False", "VRAMQuotaExceeded")


@pytest.fixture
def namespace(control_plane: ApiServer, tmp_path: Path) -> Iterator[Namespace]:
    space = Namespace(control_plane, "quota-life")
    control_plane.kubectl("create", "namespace", space.namespace)
    add_node(control_plane, "gpus-1", nvidia_com__gpu="8")
    kind = {"apiVersion": "forebay.dev/v1alpha1", "kind": "VRAMQuota"}
    space.create("vramquotas", {**kind, "metadata": {"name": "gpus"}, "spec": {"budget": "100Gi"}})
    with run_operator(control_plane.kubeconfig, tmp_path / "log") as operator:
        yield space
        assert "Traceback" not in operator.log
    remove_node(control_plane, "gpus-1")


def test_the_life_of_a_budget(namespace: Namespace) -> None:
    wait_until("An empty quota is counted", lambda: namespace.quota().get("used") == "0")

    namespace.ask("first", replicas=2)
    wait_until("The first is ready", lambda: namespace.ready("first") == READY)
    namespace.ask("second")
    wait_until("The second waits", lambda: namespace.ready("second") == WAITS)
    assert namespace.get("deployments", "second") is None
    assert "first holds 80.0 GiB" in namespace.condition("second", "Ready")["message"]
    assert namespace.condition("second", "Stalled")["reason"] == "VRAMQuotaExceeded"
    assert namespace.holders() == {"first": "80Gi", "second": "0"}

    before = namespace.pods()
    namespace.change("vramquotas", "gpus", budget="10Gi")
    wait_until("The quota tells", lambda: _says(namespace) == ("False", "BudgetExceeded"))
    namespace.change("inferenceservices", "first", replicas=3)
    wait_until("It may not grow", lambda: namespace.ready("first") == WAITS)
    assert namespace.pods() == before

    namespace.change("inferenceservices", "first", replicas=2)
    wait_until("The first is ready", lambda: namespace.ready("first") == READY)
    namespace.change("vramquotas", "gpus", budget="80Gi")
    wait_until("The quota tells", lambda: _says(namespace) == ("False", "ServicesWait"))
    assert namespace.pods() == before
    namespace.server.request("DELETE", namespace.path("inferenceservices", "first"))
    wait_until("The second is ready", lambda: namespace.ready("second") == READY)
    assert _says(namespace) == ("True", "AllAdmitted")


def _says(namespace: Namespace) -> tuple[str, str]:
    conditions = namespace.quota().get("conditions") or [{"status": "", "reason": ""}]
    return conditions[0]["status"], conditions[0]["reason"]
