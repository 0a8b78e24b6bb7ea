"""Pools of different GPUs and a real scheduler: pods land where the plan says, or are told why."""

from collections.abc import Iterator
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import OperatorProcess, run_operator, wait_until
from played_node import PlayedNode

pytestmark = pytest.mark.component

MODEL = {"uri": "oci://localhost/smollm2:q4_1"}
MEMORY = "nvidia.com/gpu.memory"
POOLS = {
    "small": ({MEMORY: "2048"}, "2"),
    "large": ({MEMORY: "24576", "nvidia.com/gpu.product": "NVIDIA-L4"}, "2"),
    "huge": ({MEMORY: "81920", "nvidia.com/gpu.product": "NVIDIA-H100"}, "1"),
    "unlabelled": ({}, "8"),
}


@pytest.fixture(scope="module")
def pools(control_plane: ApiServer) -> Iterator[None]:
    for name, (labels, num_gpus) in POOLS.items():
        add_node(control_plane, name, labels, nvidia_com__gpu=num_gpus)
    yield
    for name in POOLS:
        remove_node(control_plane, name)


@pytest.fixture(scope="module")
def operator(
    control_plane: ApiServer, pools: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    log = tmp_path_factory.mktemp("operator") / "log"
    with run_operator(control_plane.kubeconfig, log) as running:
        yield running


@pytest.fixture(scope="module")
def node(control_plane: ApiServer) -> PlayedNode:
    control_plane.kubectl("create", "namespace", "mixed-pools")
    return PlayedNode(control_plane, "mixed-pools")


def create(node: PlayedNode, name: str, **spec: Any) -> None:
    manifest = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": MODEL, "device": "GPU"} | spec,
    }
    node.create("inferenceservices", manifest)


def says(node: PlayedNode, name: str, condition: str, status: str) -> str:
    def check() -> str:
        found = node.condition(name, condition)
        return str(found["message"]) if found.get("status") == status else ""

    return wait_until(f"{name} is {condition}={status}", check)


def test_pods_land_on_the_nodes_that_the_plan_names_and_wait_when_those_are_full(
    operator: OperatorProcess, node: PlayedNode
) -> None:
    create(node, "pinned", replicas=3, engine={"maxModelLen": 8192, "maxNumSeqs": 32})
    says(node, "pinned", "Ready", "True")
    plan = (node.get("inferenceservices", "pinned") or {})["status"]["plan"]
    listed = node.server.kubectl("get", "nodes", "-l", plan["nodeSelector"], "-o", "name").stdout
    assert plan["nodes"] == ["huge", "large"]
    assert sorted(listed.split()) == ["node/huge", "node/large"]
    assert {pod["spec"]["nodeName"] for pod in node.list("pods") if is_serving(pod)} == {
        "huge",
        "large",
    }

    node.server.kubectl(
        "-n", node.namespace, "scale", "--replicas=4", "inferenceservices.forebay.dev/pinned"
    )
    told = wait_until("The fourth has no node", lambda: message_of(node, "pinned", "Unschedulable"))
    assert "nvidia.com/gpu 1" in told
    assert len([pod for pod in node.list("pods") if is_serving(pod)]) == 4


def test_what_no_node_can_hold_is_told_and_planned_for_once_such_a_node_is_there(
    operator: OperatorProcess, node: PlayedNode, control_plane: ApiServer
) -> None:
    create(node, "wide", engine={"tensorParallelSize": 3})
    told = says(node, "wide", "Fits", "False")
    assert "engine.tensorParallelSize is 3, but a node has" in told
    assert node.get("deployments", "wide") is None
    add_node(control_plane, "wider", {MEMORY: "24576"}, nvidia_com__gpu="4")
    says(node, "wide", "Ready", "True")
    (pod,) = [one for one in node.list("pods") if one["metadata"]["name"].startswith("wide-")
              and is_serving(one)]  # fmt: skip
    remove_node(control_plane, "wider")
    assert pod["spec"]["nodeName"] == "wider"


def test_slices_tell_the_memory_of_nodes_without_labels(
    operator: OperatorProcess, node: PlayedNode, control_plane: ApiServer
) -> None:
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "unlabelled-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "unlabelled",
            "pool": {"name": "unlabelled", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": "40Gi"}}}],
        },
    }
    path = "/apis/resource.k8s.io/v1/resourceslices"
    assert control_plane.request("POST", path, slice_)[0] == 201
    selector = {"nodeSelector": {"kubernetes.io/hostname": "unlabelled"}}
    create(node, "sliced", podTemplate=selector)
    says(node, "sliced", "Ready", "True")
    plan = (node.get("inferenceservices", "sliced") or {})["status"]["plan"]
    assert (plan["gpuMemory"], plan["nodes"]) == ("40Gi", ["unlabelled"])


def is_serving(pod: dict[str, Any]) -> bool:
    return "forebay.dev/inference-service" in pod["metadata"]["labels"]


def message_of(node: PlayedNode, name: str, reason: str) -> str:
    found = node.condition(name, "Progressing")
    return str(found["message"]) if found.get("reason") == reason else ""
