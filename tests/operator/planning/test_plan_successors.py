"""Pods on a node whose end is announced get successors before they go, and go first."""

from typing import Any

import pytest

from forebay_operator.planned import Plan
from observed_builder import child, leaving
from toy_cluster import ToyCluster, settled

DISRUPTED = "karpenter.sh/disrupted"


def placed(*nodes: str, ending: tuple[str, ...] = ("a",), taint: str = DISRUPTED) -> ToyCluster:
    """A service with a ready pod on each of these nodes."""
    cluster = settled(replicas=len(nodes))
    place(cluster, *nodes)
    cluster.nodes = tuple(
        {"metadata": {"name": name}, "spec": {"taints": [{"key": taint}]}} for name in ending
    ) + ({"metadata": {"name": "b"}},)
    return cluster


def place(cluster: ToyCluster, *nodes: str) -> None:
    for pod, node in zip(cluster.pods, nodes, strict=True):
        pod["spec"] = pod["spec"] | {"nodeName": node}


def told(decided: Plan) -> tuple[int, int]:
    """Pods that the Deployment gets, and pods that may be evicted at once."""
    deployment: Any = child(decided, "Deployment")
    budget: Any = child(decided, "PodDisruptionBudget")
    return deployment["spec"]["replicas"], budget["spec"]["maxUnavailable"]


@pytest.mark.parametrize(
    ("cluster", "pods"),
    [
        (placed("b", "b"), (2, 1)),
        (placed("a", "b"), (3, 2)),
        (placed("a"), (2, 2)),
        (placed("a", "a", "b"), (5, 3)),
        (placed("a", "b", ending=("a", "b")), (4, 3)),
        (placed("a", "b", taint="node.kubernetes.io/unschedulable"), (2, 1)),
    ],
    ids=[
        "nobody is on the ending node",
        "one of two is",
        "the only one is",
        "two of three are",
        "both nodes end",
        "a cordon announces nothing",
    ],
)
def test_each_doomed_pod_gets_a_successor(cluster: ToyCluster, pods: tuple[int, int]) -> None:
    assert told(cluster.decide()) == pods


def test_who_starts_early_and_why_is_said_once() -> None:
    cluster = placed("a", "b")
    decided = cluster.decide()
    name = cluster.pods[0]["metadata"]["name"]
    assert [note.message for note in decided.notes] == [
        f"Node a is about to go (taint {DISRUPTED}): a successor of pod {name} starts now, and the "
        "pod drains once it is ready."
    ]
    cluster.carry_out(decided)
    assert cluster.decide().notes == ()


def test_once_the_successor_is_ready_the_doomed_pod_goes_first() -> None:
    cluster = placed("a", "b")
    cluster.carry_out(cluster.decide())
    cluster.step()
    place(cluster, "a", "b", "b")
    assert told(cluster.decide()) == (3, 2)
    cluster.step()
    decided = cluster.decide()
    assert told(decided) == (2, 1)
    costs = dict(decided.deletion_costs)
    assert min(costs, key=lambda name: costs[name]) == cluster.pods[0]["metadata"]["name"]


def test_a_doomed_pod_that_somebody_evicts_earlier_needs_no_second_successor() -> None:
    cluster = placed("a", "b")
    cluster.carry_out(cluster.decide())
    cluster.pods[0] = leaving(cluster.pods[0])
    decided = cluster.decide()
    assert told(decided) == (2, 1)
    draining = (decided.status or {})["draining"]
    assert [entry["reason"] for entry in draining] == ["NodeEnding"]
