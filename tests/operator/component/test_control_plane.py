"""The whole life of a service on a real control plane, with played nodes: nothing is fake but the
containers."""

from pathlib import Path

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import run_operator, wait_until
from played_node import PlayedNode

pytestmark = pytest.mark.component


def test_a_service_becomes_ready_by_kubernetes_own_controllers(
    control_plane: ApiServer, tmp_path: Path
) -> None:
    node = PlayedNode(control_plane, "whole-life")
    control_plane.kubectl("create", "namespace", node.namespace)
    add_node(control_plane, "played-1")
    with run_operator(control_plane.kubeconfig, tmp_path / "log"):
        spec = {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU", "replicas": 2}
        node.create(
            "inferenceservices",
            {
                "apiVersion": "forebay.dev/v1alpha1",
                "kind": "InferenceService",
                "metadata": {"name": "smollm2"},
                "spec": spec,
            },
        )
        wait_until("Ready", lambda: node.condition("smollm2", "Ready").get("status") == "True")
        pods = [pod["spec"]["nodeName"] for pod in node.list("pods")]
    remove_node(control_plane, "played-1")
    assert set(pods) == {"played-1"}
