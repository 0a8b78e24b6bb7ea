"""One operator process, under its own ServiceAccount, against a real API server; the test plays the
rest."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from api_server import ApiServer
from audit import list_used
from chart import list_rules
from observed_builder import SMOLLM2
from operator_process import OperatorProcess, run_operator, wait_until
from played_node import PlayedNode
from played_runtime import load, play_runtimes

pytestmark = pytest.mark.component

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MANIFEST = {
    "apiVersion": "forebay.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "smollm2", "labels": {"team": "a"}},
    "spec": {
        "model": {"uri": "oci://localhost/smollm2:q4_1"},
        "device": "CPU",
        "engine": {"maxModelLen": 2048, "maxNumSeqs": 4},
    },
}


@pytest.fixture(scope="module")
def operator(
    api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    token = api_server.kubectl("create", "token", "forebay-operator", "-n", "forebay-system")
    kubeconfig = api_server.kubeconfig_with_token("operator", token.stdout.strip())
    log = tmp_path_factory.mktemp("operator") / "log"
    with run_operator(kubeconfig, log) as running:
        running.wait_for("Lease was acquired")
        yield running


@pytest.fixture
def node(api_server: ApiServer, namespace: str) -> PlayedNode:
    return PlayedNode(api_server, namespace)


def apply(node: PlayedNode, manifest: dict[str, Any] = MANIFEST) -> None:
    text = yaml.safe_dump(manifest)
    node.server.kubectl("apply", "-n", node.namespace, "-f", "-", stdin=text)


def inspect(node: PlayedNode) -> str:
    job = wait_until("An inspection Job", lambda: node.list("jobs"))[0]
    node.finish_inspection(job)
    return str(job["metadata"]["name"])


def deployed(node: PlayedNode) -> dict[str, Any]:
    return wait_until("A Deployment", lambda: node.get("deployments", "smollm2"))


def serve(node: PlayedNode) -> None:
    inspect(node)
    node.roll_out(deployed(node))
    wait_for(node, "Ready", "True")


def wait_for(node: PlayedNode, kind: str, status: str, reason: str = "") -> dict[str, Any]:
    def check() -> dict[str, Any]:
        found = node.condition("smollm2", kind)
        is_it = found.get("status") == status and reason in ("", found.get("reason"))
        return found if is_it else {}

    return wait_until(f"{kind}={status} {reason} {node.condition('smollm2', kind)}", check)


def test_a_service_gets_its_children_and_becomes_ready(
    operator: OperatorProcess, node: PlayedNode
) -> None:
    apply(node)
    serve(node)
    assert set(node.versions()) >= {
        "deployments/smollm2",
        "services/smollm2",
        "serviceaccounts/smollm2-forebay",
    }
    assert len(node.list("controllerrevisions")) == 1
    status = (node.get("inferenceservices", "smollm2") or {})["status"]
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)
    assert status["model"]["revision"] == SMOLLM2.revision


ADDRESSES = ("127.77.0.2", "127.77.0.3")


def listen_on(deployment: dict[str, Any], port: int) -> dict[str, Any]:
    """A Deployment whose pods serve on another port: the test's machine has only one 8000."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["ports"][0]["containerPort"] = port
    return deployment


def test_the_pod_that_holds_least_is_the_first_to_go(
    operator: OperatorProcess, node: PlayedNode
) -> None:
    apply(node, {**MANIFEST, "spec": {**MANIFEST["spec"], "replicas": 2}})
    inspect(node)
    with play_runtimes(dict(zip(ADDRESSES, (load(3), load(1)), strict=True))) as port:
        node.roll_out(listen_on(deployed(node), port), addresses=ADDRESSES)
        wait_for(node, "Ready", "True")
        node.server.kubectl("scale", "-n", node.namespace, "fisvc/smollm2", "--replicas=1")
        wait_until("It shrinks", lambda: deployed(node)["spec"]["replicas"] == 1)
    costs = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"][DELETION_COST]
        for pod in node.list("pods")
        if pod["metadata"]["name"].startswith("smollm2-1-")
    }
    assert costs == {"smollm2-1-0": "1", "smollm2-1-1": "0"}


def test_a_queue_brings_more_replicas(operator: OperatorProcess, node: PlayedNode) -> None:
    scaling = {"minReplicas": 1, "maxReplicas": 2, "targetQueueDepth": 2}
    apply(node, {**MANIFEST, "spec": {**MANIFEST["spec"], "scaling": scaling}})
    inspect(node)
    with play_runtimes({ADDRESSES[0]: load(4, waiting=11)}) as port:
        node.roll_out(listen_on(deployed(node), port), addresses=ADDRESSES)
        wait_until("It grows", lambda: deployed(node)["spec"]["replicas"] == 2)
    status = (node.get("inferenceservices", "smollm2") or {})["status"]
    assert status["scaling"]["desiredReplicas"] == 2
    assert "11" in status["scaling"]["message"]


def test_a_service_of_the_same_name_waits_for_what_the_old_one_left(
    operator: OperatorProcess, node: PlayedNode
) -> None:
    apply(node)
    serve(node)
    old = deployed(node)["metadata"]["uid"]
    node.server.kubectl("delete", "-n", node.namespace, "fisvc/smollm2")
    apply(node)
    wait_until("The new one is known", lambda: node.get("inferenceservices", "smollm2"))
    node.collect_garbage()
    inspect(node)
    assert deployed(node)["metadata"]["uid"] != old


def test_nothing_went_wrong_on_the_way(operator: OperatorProcess, node: PlayedNode) -> None:
    apply(node)
    wait_until("A look", lambda: node.list("jobs"))
    assert "Traceback" not in operator.log
    assert "ERROR" not in operator.log
    assert "Warning" not in operator.log


def test_its_rights_are_what_it_uses(
    operator: OperatorProcess, api_server: ApiServer, node: PlayedNode
) -> None:
    apply(node)
    before = inspect(node)
    deployed(node)
    quota = {"apiVersion": "forebay.dev/v1alpha1", "kind": "VRAMQuota"}
    node.create("vramquotas", {**quota, "metadata": {"name": "gpus"}, "spec": {"budget": "1Gi"}})
    wait_until("A budget is counted", lambda: "status" in (node.get("vramquotas", "gpus") or {}))
    fill_history(node)
    wait_until("Old revisions go", lambda: len(node.list("controllerrevisions")) < 9)
    other_model = {**MANIFEST["spec"], "model": {"uri": "oci://localhost/other:1"}}
    apply(node, {**MANIFEST, "spec": other_model})
    wait_until(
        "The first Job goes",
        lambda: before not in [job["metadata"]["name"] for job in node.list("jobs")],
    )
    granted = list_rules()
    # The last request is written down only once it was answered.
    wait_until("All is used", lambda: granted - list_used(api_server) <= SELDOM_USED)
    used = list_used(api_server)
    assert used - granted == set()
    assert granted - used <= SELDOM_USED


SELDOM_USED = {
    (
        "get",
        "forebay.dev",
        "inferenceservices",
    ),  # after a status write that the watch does not show
    ("delete", "", "pods"),  # that back off and never served
    ("list", "", "resourcequotas"),  # while one refuses pods
    ("list", "", "events"),  # while something has been unsettled for seconds
    ("create", "coordination.k8s.io", "leases"),  # by the first operator of all
    ("get", "", "pods"),  # after a deletion cost that the watch does not show
}


def fill_history(node: PlayedNode) -> None:
    """Have more revisions than anybody returns to."""
    newest = node.list("controllerrevisions")[0]
    kept = {name: newest["metadata"][name] for name in ("namespace", "labels", "ownerReferences")}
    for number in range(1, 9):
        old = {**newest, "metadata": {**kept, "name": f"old-{number}"}, "revision": 0}
        node.create("controllerrevisions", old)
