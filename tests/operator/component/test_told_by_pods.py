"""What pods tell of themselves reaches the status: the device, and what their memory was measured
to be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from operator_process import OperatorProcess, run_operator, wait_until
from played_node import PlayedNode
from played_runtime import load, play_runtimes

pytestmark = pytest.mark.component

ADDRESS = "127.77.0.9"
GIB = 1024**3
MEASURED = {"weights": 2**28, "kvCache": 50 * GIB, "activation": 2**28, "overhead": GIB}
SPEC = {
    "model": {"uri": "oci://localhost/smollm2:q4_1"},
    "vram": {"gpuMemory": "80Gi"},
    "scaling": {"maxReplicas": 1},
}


@pytest.fixture
def operator(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    with run_operator(api_server.kubeconfig, tmp_path / "log", (namespace,)) as running:
        yield running


def test_a_gpu_service_on_a_cpu_is_not_ready_and_its_memory_is_shown_once_it_is_on_a_gpu(
    operator: OperatorProcess, api_server: ApiServer, namespace: str
) -> None:
    node = PlayedNode(api_server, namespace)
    kind = {"apiVersion": "forebay.dev/v1alpha1", "kind": "InferenceService"}
    node.create("inferenceservices", {**kind, "metadata": {"name": "smollm2"}, "spec": SPEC})
    node.finish_inspection(wait_until("An inspection Job", lambda: node.list("jobs"))[0])
    deployment = wait_until("A Deployment", lambda: node.get("deployments", "smollm2"))
    said: dict[str, Any] = {**load(0), "device": "cpu", "memoryBytes": MEASURED}
    with play_runtimes({ADDRESS: said}) as port:
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container["ports"][0]["containerPort"] = port
        node.roll_out(deployment, addresses=[ADDRESS])
        wait_until("It tells", lambda: node.condition("smollm2", "Ready")["reason"] == "RunsOnCPU")
        assert node.condition("smollm2", "Available")["status"] == "True"
        assert "spec.podTemplate.runtimeClassName" in node.condition("smollm2", "Ready")["message"]

        said["device"] = "cuda"
        wait_until("Ready", lambda: node.condition("smollm2", "Ready")["status"] == "True")
    status = (node.get("inferenceservices", "smollm2") or {})["status"]
    terms = {one["name"]: one["measured"] for one in status["memory"]["terms"]}
    assert terms == {
        "weights": "256Mi",
        "kvCache": "50Gi",
        "activation": "256Mi",
        "overhead": "1Gi",
    }
    assert node.condition("smollm2", "MemoryAsPlanned")["reason"] == "LessThanPlanned"
