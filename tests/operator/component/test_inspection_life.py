"""An inspection on a real API server: its own command reads from a hub, and Jobs are held back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from fake_hub import COMMIT, serve_hub
from model_files import TINY_LLAMA, write_hf_model
from operator_process import OperatorProcess, run_operator, wait_until
from played_node import PlayedNode

pytestmark = pytest.mark.component


@pytest.fixture(scope="module")
def operator(
    api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    log = tmp_path_factory.mktemp("operator") / "log"
    with run_operator(api_server.kubeconfig, log) as running:
        yield running


@pytest.fixture
def node(api_server: ApiServer, namespace: str) -> PlayedNode:
    return PlayedNode(api_server, namespace)


def create(node: PlayedNode, uri: str) -> dict[str, Any]:
    """Create a service; the Job that inspects its model."""
    manifest = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "tiny"},
        "spec": {"model": {"uri": uri}, "device": "CPU"},
    }
    node.create("inferenceservices", manifest)
    return wait_until("An inspection Job", lambda: node.list("jobs"))[0]


def says(node: PlayedNode, status: str, reason: str) -> str:
    def check() -> str:
        found = node.condition("tiny", "ModelInspected")
        is_it = (found.get("status"), found.get("reason")) == (status, reason)
        return str(found["message"]) if is_it else ""

    return wait_until(f"ModelInspected is {status}, {reason}", check)


def run_container(job: dict[str, Any], folder: Path, hub_url: str) -> str:
    """Run what the Job's container would, and return its last words."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    message = folder / "termination-log"
    arguments = [
        str(message) if one == container["terminationMessagePath"] else one
        for one in container["args"]
    ]
    environ = os.environ | {"HF_ENDPOINT": hub_url}
    command = [sys.executable, *container["command"][1:], *arguments]
    subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return message.read_text()


def test_a_hubs_branch_is_sized_by_its_headers_and_served_at_its_commit(
    operator: OperatorProcess, node: PlayedNode, tmp_path: Path
) -> None:
    large = TINY_LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 32000}
    job = create(node, "hf://team/model@main")
    with serve_hub(write_hf_model(tmp_path / "hub", large, num_shards=3)) as hub:
        node.finish_inspection(job, run_container(job, tmp_path, hub.url))
    says(node, "True", "Inspected")
    status = (node.get("inferenceservices", "tiny") or {})["status"]["model"]
    assert status["weightsBytes"] > 10**9 > 10**6 > hub.bytes_sent
    assert status["pinnedUri"] == f"hf://team/model@{COMMIT}"
    deployment = wait_until("A Deployment", lambda: node.get("deployments", "tiny"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["serve", f"hf://team/model@{COMMIT}"]


def test_a_job_that_kueue_holds_back_is_told_and_then_goes_on(
    operator: OperatorProcess, node: PlayedNode
) -> None:
    job = create(node, "oci://localhost/tiny:v1")
    label = {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    path, kind = node.path("jobs", job["metadata"]["name"]), "application/merge-patch+json"
    held = {"metadata": label, "spec": {"suspend": True}}
    assert node.server.request("PATCH", path, held, kind)[0] == 200
    told = says(node, "False", "InspectionSuspended")
    assert "Kueue admits it to the queue gpus" in told
    assert node.condition("tiny", "Reconciling")["reason"] == "InspectionSuspended"
    assert node.server.request("PATCH", path, {"spec": {"suspend": False}}, kind)[0] == 200
    says(node, "Unknown", "Inspecting")
    node.finish_inspection(node.get("jobs", job["metadata"]["name"]) or {})
    assert "The tag v1 may mean another image tomorrow" in says(node, "True", "Inspected")
    events = node.server.kubectl("get", "events", "-n", node.namespace, "-o", "json").stdout
    assert events.count('"reason": "ModelTagIsMutable"') == 1
