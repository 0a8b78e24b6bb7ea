"""Services on the control plane whose replicas change, and the operators that see to it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import OperatorProcess, run_operator, wait_until
from played_node import PlayedNode

Serve = Callable[..., PlayedNode]


@pytest.fixture(scope="module")
def operator(
    control_plane: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    add_node(control_plane, "scaled-1")
    log = tmp_path_factory.mktemp("operator") / "log"
    with run_operator(control_plane.kubeconfig, log) as running:
        running.wait_for("Lease was acquired")
        yield running
    remove_node(control_plane, "scaled-1")


@pytest.fixture
def serve(control_plane: ApiServer, request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Has a service called smollm2 become Ready in a namespace of the test's own."""
    name = f"s-{abs(hash(request.node.nodeid)) % 10**10}"
    node = PlayedNode(control_plane, name)
    control_plane.kubectl("create", "namespace", name)

    def start(annotations: dict[str, str] | None = None, **spec: Any) -> PlayedNode:
        model = {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"}
        template = {"podTemplate": {"annotations": annotations}} if annotations else {}
        manifest = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "smollm2"},
            "spec": model | template | spec,
        }
        node.create("inferenceservices", manifest)
        wait_until("Ready", lambda: node.condition("smollm2", "Ready").get("status") == "True")
        return node

    yield start
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
