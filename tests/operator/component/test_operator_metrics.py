"""What an operator process tells of itself over HTTP while it works."""

from pathlib import Path

import pytest

from api_server import ApiServer
from operator_process import run_operator, wait_until
from played_node import PlayedNode

pytestmark = pytest.mark.component

MANIFEST = {
    "apiVersion": "forebay.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "smollm2"},
    "spec": {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"},
}


def test_the_life_of_a_service_shows_in_the_metrics(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    node = PlayedNode(api_server, namespace)
    names = {"namespace": namespace, "name": "smollm2"}
    with run_operator(
        api_server.kubeconfig, tmp_path / "log", (namespace,), lease_namespace=namespace
    ) as operator:
        node.create("inferenceservices", MANIFEST)
        job = wait_until("An inspection Job", lambda: node.list("jobs"))[0]
        node.finish_inspection(job)
        node.roll_out(wait_until("A Deployment", lambda: node.get("deployments", "smollm2")))
        wait_until("Ready", lambda: node.condition("smollm2", "Ready").get("status") == "True")
        found = wait_until(
            "One ready service in the metrics",
            lambda: (read := operator.metrics()).sum("services", ready="True") == 1 and read,
        )
        assert found.value("leader") == 1
        assert found.value("build_info", version="0.1.0") == 1
        assert found.value("service_replicas_wanted", **names) == 1
        assert found.value("service_replicas_ready", **names) == 1
        assert found.sum("reconcile_duration_seconds_count", outcome="done") > 3
        assert found.sum("errors_total") == 0
        applied = {"verb": "patch", "resource": "deployments", "code": "201"}
        assert found.value("api_requests_total", **applied) == 1
        assert found.sum("watch_events_total", resource="pods", type="ADDED") == 2
        assert found.value("watch_age_seconds", resource="deployments") < 60
        node.server.request("DELETE", node.path("inferenceservices", "smollm2"))
        wait_until(
            "The service is forgotten",
            lambda: not operator.metrics().labelled("service_replicas_ready", **names),
        )
    node.collect_garbage()
