"""A rollout surges, unless there is no room for it or nothing old is worth keeping."""

from typing import Any

import pytest

from forebay_operator.planned import Plan
from observed_builder import NOW, child, condition_of, leaving, pod, says, unschedulable
from toy_cluster import ToyCluster, settled

FULL = "0/1 nodes are available: 1 Insufficient memory."


def rolling(**spec: Any) -> ToyCluster:
    """Two ready pods of the old template, and a new template that the Deployment has taken on."""
    cluster = settled(replicas=2, **spec)
    cluster.change(engine={"maxNumSeqs": 3})
    cluster.carry_out(cluster.decide())
    return cluster


def surge(cluster: ToyCluster, status: dict[str, Any] | None = None) -> None:
    """One pod of the new template, in some state."""
    template = cluster.children["Deployment", "smollm2"]["spec"]["template"]
    digest = template["metadata"]["labels"]["forebay.dev/template-hash"]
    cluster.pods.append(pod("surge", template=digest, status=status or {}))


def pace(decided: Plan) -> str:
    deployment = child(decided, "Deployment")
    assert deployment is not None
    rolling_update = deployment["spec"]["strategy"]["rollingUpdate"]
    return "Surge" if rolling_update == {"maxSurge": 1, "maxUnavailable": 0} else "Replace"


def stuck_since(cluster: ToyCluster, seconds: float) -> dict[str, Any]:
    return unschedulable(FULL, since=(cluster.now - NOW).total_seconds() - seconds)


@pytest.mark.parametrize(
    ("strategy", "seconds", "expected"),
    [
        ("Auto", 29, "Surge"),
        ("Auto", 30, "Replace"),
        ("Surge", 300, "Surge"),
        ("Replace", 0, "Replace"),
    ],
    ids=[
        "a surge pod gets its time",
        "after 30 seconds an old pod makes room",
        "who asks for Surge gets it",
        "who asks for Replace gets it",
    ],
)
def test_a_surge_without_a_node(strategy: str, seconds: float, expected: str) -> None:
    cluster = rolling(rollout={"strategy": strategy})
    surge(cluster, stuck_since(cluster, seconds))
    assert pace(cluster.decide()) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
        "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}.",
        '0/1 nodes are available: persistentvolumeclaim "models" not found.',
    ],
    ids=["a mistyped node selector", "a taint", "a missing claim"],
)
def test_no_pod_that_serves_makes_room_where_room_is_not_what_is_missing(sentence: str) -> None:
    cluster = rolling()
    since = (cluster.now - NOW).total_seconds() - 300
    surge(cluster, unschedulable(sentence, since=since))
    decided = cluster.decide()
    assert pace(decided) == "Surge"
    assert says(decided, "Progressing")[0] == "False"


def test_a_paused_deployment_is_told() -> None:
    cluster = rolling()
    deployment = cluster.children["Deployment", "smollm2"]
    deployment["spec"] = {**deployment["spec"], "paused": True}
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "DeploymentPaused")
    assert "kubectl rollout resume" in condition_of(decided, "Ready")["message"]


def test_the_wait_for_a_node_is_looked_at_again() -> None:
    cluster = rolling()
    surge(cluster, stuck_since(cluster, 20))
    assert cluster.decide().look_again_seconds == pytest.approx(10)


def test_once_it_replaces_it_goes_on_so_and_says_it() -> None:
    cluster = rolling()
    surge(cluster, stuck_since(cluster, 40))
    cluster.carry_out(cluster.decide())
    cluster.pods.pop()
    surge(cluster)
    decided = cluster.decide()
    assert pace(decided) == "Replace"
    assert says(decided, "Progressing") == ("True", "Replacing")
    assert "No node took a surge pod" in condition_of(decided, "Progressing")["message"]


def test_the_next_rollout_tries_a_surge_again() -> None:
    cluster = rolling()
    surge(cluster, stuck_since(cluster, 40))
    cluster.carry_out(cluster.decide())
    cluster.change(engine={"maxNumSeqs": 4})
    assert pace(cluster.decide()) == "Surge"


def test_old_pods_that_do_not_serve_are_not_kept() -> None:
    cluster = rolling()
    for index in (0, 1):
        cluster.befall({"containerStatuses": []}, index)
    assert pace(cluster.decide()) == "Replace"


def test_a_pending_pod_outside_a_rollout_is_no_reason_to_replace() -> None:
    cluster = settled(replicas=2)
    cluster.befall(stuck_since(cluster, 300))
    assert pace(cluster.decide()) == "Surge"


def test_leaving_pods_of_the_old_template_are_no_rollout() -> None:
    cluster = settled()
    cluster.pods.append(leaving(pod("old", template="old", ready=True)))
    assert pace(cluster.decide()) == "Surge"


def test_while_it_rolls_the_old_generation_serves_and_ready_waits() -> None:
    cluster = rolling()
    surge(cluster)
    decided = cluster.decide()
    assert says(decided, "Available") == ("True", "ReplicasReady")
    assert says(decided, "Ready")[0] == "False"
    assert says(decided, "Reconciling")[0] == "True"


def test_what_ailed_the_old_template_is_not_told_of_the_new_one() -> None:
    cluster = settled()
    crashed = {"exitCode": 1, "message": "Broken"}
    cluster.befall({"containerStatuses": [{"name": "runtime", "state": {"terminated": crashed}}]})
    assert says(cluster.decide(), "Ready") == ("False", "ContainerCrashed")
    cluster.change(engine={"maxNumSeqs": 3})
    assert says(cluster.decide(), "Ready") == ("False", "Starting")
