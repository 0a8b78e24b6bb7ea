"""A real HorizontalPodAutoscaler may own `spec.replicas`, and nobody fights about them."""

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from metrics_api import METRIC, MetricsApi, serve_metrics
from operator_process import run_operator, wait_until
from played_node import PlayedNode
from recording import Object, Recording, record

pytestmark = pytest.mark.component

HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
SERVICE = {"apiVersion": "forebay.dev/v1alpha1", "kind": "InferenceService", "name": "smollm2"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "smollm2"}


@pytest.fixture
def metrics(control_plane: ApiServer) -> Iterator[MetricsApi]:
    add_node(control_plane, "scaled-2")
    with serve_metrics(control_plane) as found:
        yield found
    remove_node(control_plane, "scaled-2")


def create_hpa(node: PlayedNode, target: Object) -> None:
    """From 1 to 6 replicas, one for each 10 waiting requests, without any delay."""
    source = {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "10"}}
    policies = [{"type": "Pods", "value": 6, "periodSeconds": 1}]
    at_once = {"stabilizationWindowSeconds": 0, "policies": policies}
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "smollm2"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": 6,
            "metrics": [{"type": "External", "external": source}],
            "behavior": {"scaleDown": at_once, "scaleUp": at_once},
        },
    }
    status, answer = node.server.request("POST", HPAS.format(node.namespace), manifest)
    assert status == 201, answer


def asked(recording: Recording) -> list[int]:
    """The replicas that an object was asked for, one after the other."""
    numbers = (one["spec"].get("replicas") for one in recording.states)
    return [number for number, _ in groupby(numbers)]


def wait_for_pods(node: PlayedNode, number: int) -> None:
    def is_so() -> bool:
        status = (node.get("inferenceservices", "smollm2") or {})["status"]
        is_ready = node.condition("smollm2", "Ready")["status"] == "True"
        return is_ready and status["readyReplicas"] == number

    wait_until(f"{number} replicas", is_so, 60)


def test_an_operator_and_an_hpa_do_not_fight_over_replicas(
    metrics: MetricsApi, control_plane: ApiServer, serve: Any, tmp_path: Path
) -> None:
    """Users of another operator saw the two fight 41 times in 14 minutes."""
    with run_operator(control_plane.kubeconfig, tmp_path / "log") as operator:
        node: PlayedNode = serve(replicas=1)
        paths = node.path("inferenceservices"), node.path("deployments")
        with record(control_plane, *paths) as (services, deployments):
            create_hpa(node, SERVICE)
            metrics.value = 40
            wait_for_pods(node, 4)
            operator.kill()
            metrics.value = 20
            wait_until("The HPA says 2", lambda: asked(services)[-1] == 2)
            with run_operator(control_plane.kubeconfig, tmp_path / "log"):
                wait_for_pods(node, 2)
                metrics.value = 60
                wait_for_pods(node, 6)
                time.sleep(2)
    assert asked(services)[-3:] == asked(deployments)[-3:] == [4, 2, 6]
    assert len(asked(services)) <= 5 and len(asked(deployments)) <= 5
    writers = {
        entry["manager"]
        for one in services.states
        for entry in one["metadata"]["managedFields"]
        if "f:spec" in entry["fieldsV1"]
    }
    assert "forebay" not in writers and "kube-controller-manager" in writers


def test_an_hpa_of_the_deployment_is_told_its_right_target(
    metrics: MetricsApi, control_plane: ApiServer, serve: Any, tmp_path: Path
) -> None:
    with run_operator(control_plane.kubeconfig, tmp_path / "log"):
        node: PlayedNode = serve(replicas=1)
        with record(control_plane, node.path("deployments")) as (deployments,):
            metrics.value = 30
            create_hpa(node, DEPLOYMENT)
            kind = "AutoscalerMisdirected"
            wait_until("It is told", lambda: node.condition("smollm2", kind))
            said = node.condition("smollm2", kind)
            wait_until("Its number stands", lambda: asked(deployments)[-2:] == [1, 3])
            time.sleep(5)
        assert asked(deployments) == [3, 1, 3]
        assert said["message"].endswith(
            "point its scaleTargetRef at InferenceService smollm2 of forebay.dev/v1alpha1."
        )
        assert node.condition("smollm2", kind) == said


def test_what_a_person_scales_in_the_wrong_place_is_put_back_and_said(
    operator: Any, control_plane: ApiServer, serve: Any
) -> None:
    node: PlayedNode = serve(replicas=2)
    with record(control_plane, node.path("deployments")) as (deployments,):
        command = ("scale", "deployment/smollm2", "--replicas=3", "-n", node.namespace)
        control_plane.kubectl(*command)
        wait_until("It is put back", lambda: asked(deployments)[-2:] == [3, 2])
    found = control_plane.kubectl(
        "get", "events", "-n", node.namespace, "--field-selector=reason=ReplicasPutBack", "-o=name"
    )
    assert len(found.stdout.splitlines()) == 1
