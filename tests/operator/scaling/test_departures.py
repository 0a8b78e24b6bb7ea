"""How pods leave on a real control plane: by eviction, by scale-down, with their node, with their
service."""

from typing import Any

import pytest

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import OperatorProcess, wait_until
from played_node import CHILDREN, PlayedNode
from played_pods import ADDRESS, GONE_AFTER, READY_AFTER
from played_runtime import load, play_runtimes
from recording import record

pytestmark = pytest.mark.component

SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
LONG = {GONE_AFTER: "1h"}
BRIEF = {GONE_AFTER: "3s"}


def pods(node: PlayedNode) -> list[dict[str, Any]]:
    """Those that serve, oldest first."""
    found = [one for one in node.list("pods") if "ReplicaSet" in str(one["metadata"])]
    return sorted(found, key=lambda one: one["metadata"]["creationTimestamp"])


def staying(node: PlayedNode) -> list[dict[str, Any]]:
    return [one for one in pods(node) if "deletionTimestamp" not in one["metadata"]]


def name_of(pod: dict[str, Any]) -> str:
    name: str = pod["metadata"]["name"]
    return name


def evict(node: PlayedNode, name: str) -> int:
    """Ask the Eviction API; its status code."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return node.server.request("POST", f"{node.path('pods', name)}/eviction", eviction)[0]


def wait_for_budget(node: PlayedNode, allowed: int) -> None:
    def is_so() -> bool:
        budget = node.get("poddisruptionbudgets", "smollm2") or {}
        status = budget.get("status") or {}
        is_seen = status.get("observedGeneration") == budget["metadata"]["generation"]
        return is_seen and status["disruptionsAllowed"] == allowed

    wait_until(f"{allowed} may be evicted", is_so)


def draining(node: PlayedNode) -> list[dict[str, Any]]:
    service = node.get("inferenceservices", "smollm2") or {}
    found: list[dict[str, Any]] = service["status"].get("draining", [])
    return found


def endpoints(node: PlayedNode) -> dict[str, dict[str, bool]]:
    """The Service's endpoints by pod: what a proxy goes by."""
    slices = node.server.request("GET", SLICES.format(node.namespace))[1]["items"]
    entries = [entry for one in slices for entry in one["endpoints"] or ()]
    return {entry["targetRef"]["name"]: entry["conditions"] for entry in entries}


def test_of_two_evictions_at_once_the_second_is_refused(
    operator: OperatorProcess, serve: Any
) -> None:
    before = operator.metrics().sum("drains_total", outcome="finished")
    node: PlayedNode = serve(BRIEF | {READY_AFTER: "3s"}, replicas=2)
    wait_for_budget(node, 1)
    first, second = map(name_of, pods(node))
    assert (evict(node, first), evict(node, second)) == (201, 429)
    (gone,) = wait_until("It is listed", lambda: draining(node))
    assert (gone["pod"], gone["reason"]) == (first, "Evicted")
    wait_until("A successor is ready", lambda: len(staying(node)) == 2)
    wait_until("It is gone", lambda: first not in map(name_of, pods(node)))
    wait_until("Nothing drains", lambda: not draining(node))
    wait_for_budget(node, 1)
    assert operator.metrics().sum("drains_total", outcome="finished") >= before + 1


def test_the_only_replica_may_be_evicted_and_a_terminating_pod_gets_no_requests(
    operator: OperatorProcess, serve: Any
) -> None:
    node: PlayedNode = serve(LONG | {ADDRESS: "192.0.2.1"}, replicas=1)
    wait_for_budget(node, 1)
    (only,) = map(name_of, pods(node))
    wait_until("It is an endpoint", lambda: endpoints(node).get(only, {}).get("ready"))
    assert evict(node, only) == 201
    wait_until("It is none", lambda: not endpoints(node)[only]["ready"])
    assert endpoints(node)[only]["terminating"]

    def others() -> list[str]:
        found = endpoints(node).items()
        return [name for name, state in found if state["ready"] and name != only]

    wait_until("Its successor is one", others)


def test_a_pod_that_is_killed_at_its_deadline_is_counted_and_told(
    operator: OperatorProcess, serve: Any
) -> None:
    node: PlayedNode = serve(LONG, replicas=1)
    before = operator.metrics().sum("drains_total", outcome="forced")
    (pod,) = pods(node)
    node.server.kubectl("delete", "pod", name_of(pod), "-n", node.namespace, "--wait=false")
    wait_until("It is listed", lambda: draining(node))
    (container,) = pod["status"]["containerStatuses"]
    killed = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    ended = {**container, "ready": False, "state": {"terminated": killed}}
    node.patch_status("pods", name_of(pod), {"containerStatuses": [ended]})
    wait_until(
        "It is counted",
        lambda: operator.metrics().sum("drains_total", outcome="forced") == before + 1,
    )
    events = node.server.kubectl("get", "events", "-n", node.namespace, "-o", "yaml").stdout
    assert "DrainCutShort" in events and "exit code 137" in events


def test_the_pod_that_holds_least_goes_first(operator: OperatorProcess, serve: Any) -> None:
    node: PlayedNode = serve(LONG, replicas=3)
    found = {name_of(one): one["status"]["podIP"] for one in pods(node)}
    loads = dict(zip(sorted(found), (load(5), load(1), load(3)), strict=True))
    with play_runtimes({found[name]: said for name, said in loads.items()}, port=8000):
        node.server.kubectl("scale", "fisvc/smollm2", "--replicas=2", "-n", node.namespace)
        (gone,) = wait_until("It is listed", lambda: draining(node))
    assert (gone["pod"], gone["inFlight"]) == (sorted(found)[1], 1)


def test_a_pod_whose_node_is_about_to_go_is_replaced_before_it_goes(
    operator: OperatorProcess, control_plane: ApiServer, serve: Any
) -> None:
    node: PlayedNode = serve(BRIEF, replicas=1)
    (doomed,) = pods(node)
    add_node(control_plane, "spare")
    taint = ("taint", "node", doomed["spec"]["nodeName"], "karpenter.sh/disrupted")
    with record(control_plane, node.path("deployments")) as (deployments,):
        control_plane.kubectl(*taint[:3], f"{taint[3]}:NoSchedule")
        (gone,) = wait_until("It drains", lambda: draining(node))
        assert (gone["pod"], gone["reason"]) == (name_of(doomed), "NodeEnding")
        wait_until("It is gone", lambda: name_of(doomed) not in map(name_of, pods(node)))
    (left,) = pods(node)
    control_plane.kubectl(*taint[:3], f"{taint[3]}-")
    remove_node(control_plane, "spare")
    assert left["spec"]["nodeName"] == "spare"
    assert min(one["status"].get("readyReplicas", 0) for one in deployments.states) == 1
    assert [one["spec"]["replicas"] for one in deployments.states][-1] == 1


def test_bounds_are_kept_at_once_by_schedule_and_by_hand(
    operator: OperatorProcess, serve: Any
) -> None:
    """Raising minReplicas once did not scale."""
    schedules = [{"cron": "* * * * *", "timeZone": "Asia/Tokyo", "minReplicas": 2}]
    node: PlayedNode = serve(scaling={"maxReplicas": 4, "schedules": schedules})
    assert len(pods(node)) == 2
    service = node.get("inferenceservices", "smollm2") or {}
    assert service["status"]["scaling"]["schedule"]["timeZone"] == "Asia/Tokyo"
    patch = '{"spec": {"scaling": {"minReplicas": 3, "schedules": []}}}'
    command = ("patch", "fisvc/smollm2", "--type=merge", "-p", patch, "-n", node.namespace)
    node.server.kubectl(*command)
    wait_until("Three", lambda: len(staying(node)) == 3)


def test_the_children_of_a_deleted_service_go_and_its_pods_drain(
    operator: OperatorProcess, serve: Any
) -> None:
    node: PlayedNode = serve(BRIEF, replicas=1)
    (pod,) = pods(node)
    node.server.kubectl("delete", "fisvc/smollm2", "-n", node.namespace)
    wait_until("It drains", lambda: pods(node) and not staying(node))
    assert name_of(pods(node)[0]) == name_of(pod)
    wait_until("All are gone", lambda: not pods(node), 40)

    def left() -> list[str]:
        found = [name_of(one) for plural in CHILDREN for one in node.list(plural)]
        return [name for name in found if name.startswith("smollm2")]

    wait_until("All children are gone", lambda: not left())
