"""Operators that die, return, stand by and take over: nothing is lost and nothing is done twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from operator_process import OperatorProcess, run_operator, wait_until
from played_node import PlayedNode

pytestmark = pytest.mark.component

MANIFEST = {
    "apiVersion": "forebay.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "smollm2"},
    "spec": {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"},
}

Start = Callable[..., Any]


@pytest.fixture
def node(api_server: ApiServer, namespace: str) -> PlayedNode:
    return PlayedNode(api_server, namespace)


@pytest.fixture
def start(node: PlayedNode, tmp_path: Path) -> Start:
    """Start an operator for the test's namespace alone, with a lease of its own."""

    def start_one(name: str = "operator-1") -> Any:
        scope = {"namespaces": (node.namespace,), "lease_namespace": node.namespace}
        return run_operator(node.server.kubeconfig, tmp_path / name, name=name, **scope)

    return start_one


def apply(node: PlayedNode) -> None:
    text = yaml.safe_dump(MANIFEST)
    node.server.kubectl("apply", "-n", node.namespace, "-f", "-", stdin=text)


def holder(node: PlayedNode) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{node.namespace}/leases/forebay-operator"
    return str(node.server.request("GET", path)[1].get("spec", {}).get("holderIdentity", ""))


def test_one_works_while_the_other_stands_by_and_takes_over_on_its_end(
    start: Start, node: PlayedNode
) -> None:
    with start("operator-1") as first:
        wait_until("The first leads", lambda: holder(node) == "operator-1")
        with start("operator-2") as second:
            apply(node)
            job = wait_until("An inspection Job", lambda: node.list("jobs"))[0]
            wait_until("The second is up", lambda: "Activity 'login' succeeded" in second.log)
            first.stop()
            node.finish_inspection(job)
            wait_until("A Deployment", lambda: node.get("deployments", "smollm2"))
            assert holder(node) == "operator-2"
            assert "kind=Job" in first.log and "kind=Job" not in second.log
            assert "kind=Deployment" in second.log and "kind=Deployment" not in first.log


def test_one_that_lost_its_lease_ends(start: Start, node: PlayedNode) -> None:
    with start("operator-1") as only:
        wait_until("It leads", lambda: holder(node) == "operator-1")
        patch = '{"spec": {"holderIdentity": "operator-2"}}'
        lease = ("lease", "forebay-operator", "--type=merge", "-p", patch)
        node.server.kubectl("patch", "-n", node.namespace, *lease)
        wait_until("It ends", lambda: only.process.poll() is not None)
        assert holder(node) == "operator-2"
        assert "Lease was lost" in only.log


def test_it_waits_for_its_definition(start: Start, node: PlayedNode) -> None:
    """A service may come before or after: here the API server is there and the CRD is not."""
    running: OperatorProcess
    crd = "inferenceservices.forebay.dev"
    definition = node.server.kubectl("get", "crd", crd, "-o", "json").stdout
    node.server.kubectl("delete", "crd", crd, "--timeout=20s")
    try:
        with start() as running:
            wait_until("It says what is missing", lambda: "apply crds/ first" in running.log)
            node.server.kubectl("create", "-f", "-", stdin=definition)
            wait_until("It leads", lambda: holder(node) == "operator-1")
            apply(node)
            wait_until("An inspection Job", lambda: node.list("jobs"))
    finally:
        node.server.kubectl("create", "-f", "-", stdin=definition, check=False)
