"""A rollout surges, unless there is no room for it or nothing old is worth keeping.

What a user of another operator once reported has that report as its name.
"""

from typing import Any

import pytest

from forebay_operator.planned import Plan
from observed_builder import (
    NOW,
    child,
    condition,
    condition_of,
    labelled_node,
    leaving,
    pod,
    says,
    terminated,
    text,
    unschedulable,
)
from toy_cluster import HASH, ToyCluster, settled

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
    return {(1, 0): "Surge", (0, 1): "Replace", (0, "100%"): "Restart"}[
        rolling_update["maxSurge"], rolling_update["maxUnavailable"]
    ]


def announced(cluster: ToyCluster) -> Plan:
    """The decision after the next one."""
    cluster.carry_out(cluster.decide())
    return cluster.decide()


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
    assert pace(announced(cluster)) == expected


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


@pytest.mark.parametrize(
    ("cpus", "labels", "expected"),
    [
        (4, {}, "Replace"),
        (1, {}, "Surge"),
        (4, {"pool": "b"}, "Surge"),
    ],
    ids=["is large enough", "is too small", "is in another pool"],
)
def test_a_pod_makes_room_only_where_its_node(
    cpus: int, labels: dict[str, str], expected: str
) -> None:
    cluster = rolling()
    home = labelled_node("home", {"cpu": cpus}, {"pool": "a"} | labels)
    cluster.nodes = (home, labelled_node("elsewhere", {"cpu": 4}, {"pool": "a"}))
    for one in cluster.pods:
        one["spec"] = {**one["spec"], "nodeName": "home"}
    surge(cluster, stuck_since(cluster, 31))
    asked = [{"name": "runtime", "image": "i", "resources": {"requests": {"cpu": "2"}}}]
    cluster.pods[-1]["spec"] = {"containers": asked, "nodeSelector": {"pool": "a"}}
    assert pace(announced(cluster)) == expected


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
    cluster.carry_out(announced(cluster))
    cluster.pods.pop()
    surge(cluster)
    decided = cluster.decide()
    assert pace(decided) == "Replace"
    assert says(decided, "Progressing") == ("True", "Replacing")
    assert "no room for a surge pod" in condition_of(decided, "Progressing")["message"]


def test_the_next_rollout_tries_a_surge_again() -> None:
    cluster = rolling()
    surge(cluster, stuck_since(cluster, 40))
    cluster.carry_out(announced(cluster))
    cluster.change(engine={"maxNumSeqs": 4})
    assert pace(cluster.decide()) == "Surge"


CRASHED = {"containerStatuses": [{"name": "runtime", "state": terminated(message="No")}]}
LOADING = {"containerStatuses": [{"name": "runtime", "started": False}]}
BLIP = {"containerStatuses": [{"name": "runtime", "started": True}]}


@pytest.mark.parametrize("strategy", ["Auto", "Surge", "Replace"])
@pytest.mark.parametrize(
    ("other", "is_kept"),
    [(CRASHED, False), (LOADING, True), (BLIP, True), (None, True)],
    ids=["fails, too", "still loads", "served until a moment ago", "serves"],
)
def test_old_pods_make_way_at_once_where_one_fails_and_the_other(
    strategy: str, other: dict[str, Any] | None, is_kept: bool
) -> None:
    """Else a fix would wait for the pods that it mends, and for ever where they hold its GPU."""
    cluster = rolling(rollout={"strategy": strategy})
    cluster.befall(CRASHED)
    if other is not None:
        cluster.befall(other, 1)
    kept = "Replace" if strategy == "Replace" else "Surge"
    assert pace(cluster.decide()) == (kept if is_kept else "Restart")


def test_when_an_old_pod_serves_again_a_surge_is_tried_and_nothing_is_said_of_room() -> None:
    cluster = rolling()
    healthy = cluster.pods[0]["status"]
    for index in (0, 1):
        cluster.befall(CRASHED, index)
    cluster.carry_out(cluster.decide())
    cluster.befall(healthy)
    surge(cluster)
    decided = cluster.decide()
    assert pace(decided) == "Surge"
    assert says(decided, "Progressing") == ("True", "RollingOut")


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


def test_a_pod_that_is_lost_outside_a_rollout_is_no_rollout() -> None:
    cluster = settled(replicas=2)
    del cluster.pods[0]
    assert says(cluster.decide(), "Ready") == ("False", "Scaling")


def test_a_rollout_is_called_so_though_its_controller_has_not_counted_the_newest_pod() -> None:
    cluster = settled()
    cluster.change(engine={"maxNumSeqs": 3})
    cluster.carry_out(cluster.decide())
    surge(cluster)
    assert says(cluster.decide(), "Ready") == ("False", "RollingOut")


def test_a_service_on_its_way_to_no_replica_is_not_starting() -> None:
    cluster = settled()
    cluster.change(replicas=0)
    cluster.befall(CRASHED)
    assert says(cluster.decide(), "Ready") == ("False", "Scaling")
    cluster.pods.clear()
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "Scaling")
    cluster.carry_out(decided)
    assert condition_of(cluster.settle(), "Progressing")["message"].startswith("No replica")


def replica_set(uid: str, revision: int, digest: str) -> dict[str, Any]:
    labels, number = {HASH: digest}, {"deployment.kubernetes.io/revision": str(revision)}
    metadata = {"name": uid, "uid": uid, "labels": labels, "annotations": number}
    moment = {"creationTimestamp": text(-60)}
    return {"metadata": metadata | moment, "spec": {"replicas": 1}, "status": {"replicas": 1}}


def restarted() -> ToyCluster:
    """One pod, which serves, and `kubectl rollout restart` made a ReplicaSet that finds no room."""
    cluster = settled()
    (digest,) = cluster.hashes()
    surge(cluster)
    cluster.befall(stuck_since(cluster, 31), 1)
    cluster.replica_sets = (replica_set("b", 10, digest), replica_set("a", 9, digest))
    for one, uid in zip(cluster.pods, ("a", "b"), strict=True):
        one["metadata"] = one["metadata"] | {"ownerReferences": [{"uid": uid, "controller": True}]}
    return cluster


def test_a_restart_by_kubectl_makes_room_as_a_rollout_does() -> None:
    cluster = restarted()
    telling = cluster.decide()
    assert (pace(telling), says(telling, "Ready")) == ("Surge", ("False", "Replacing"))
    assert pace(announced(cluster)) == "Replace"
    cluster.replica_sets = cluster.replica_sets[1:]
    assert pace(cluster.decide()) == "Surge"


@pytest.mark.parametrize(
    ("late", "reason"),
    [(-60, "Replacing"), (29, "Replacing"), (30, "Unschedulable")],
    ids=["still drains", "is about to be gone", "will never go"],
)
def test_a_pod_on_a_node_that_went_silent_makes_no_room_for_ever(late: float, reason: str) -> None:
    cluster = rolling(rollout={"strategy": "Replace"})
    surge(cluster, stuck_since(cluster, 200))
    deadline = (cluster.now - NOW).total_seconds() - late
    cluster.pods[0] = leaving(cluster.pods[0], deadline)
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", reason)
    assert decided.look_again_seconds is not None or reason == "Unschedulable"


def test_what_ailed_the_old_template_is_not_told_of_the_new_one() -> None:
    cluster = settled()
    crashed = {"exitCode": 1, "message": "Broken"}
    cluster.befall({"containerStatuses": [{"name": "runtime", "state": {"terminated": crashed}}]})
    assert says(cluster.decide(), "Ready") == ("False", "ContainerCrashed")
    cluster.change(engine={"maxNumSeqs": 3})
    assert says(cluster.decide(), "Ready") == ("False", "Starting")


def test_an_outage_is_announced_in_a_condition_and_an_event_before_the_old_pod_goes() -> None:
    cluster = settled()
    cluster.change(engine={"maxNumSeqs": 3})
    cluster.carry_out(cluster.decide())
    surge(cluster, stuck_since(cluster, 31))
    telling = cluster.decide()
    assert pace(telling) == "Surge"
    for kind in ("Progressing", "Ready"):
        assert says(telling, kind) == (
            "True" if kind == "Progressing" else "False",
            "Replacing",
        )
        message = condition_of(telling, kind)["message"]
        assert "nothing serves between" in message and "spec.rollout.strategy" in message
    (note,) = telling.notes
    assert (note.type, note.reason) == ("Warning", "Replacing")
    assert telling.look_again_seconds == pytest.approx(1)
    cluster.carry_out(telling)
    acting = cluster.decide()
    assert pace(acting) == "Replace"
    assert acting.notes == ()


def test_that_a_pod_makes_room_is_said_while_it_drains_and_then_what_is_wrong() -> None:
    cluster = settled()
    cluster.change(engine={"maxNumSeqs": 3})
    cluster.carry_out(cluster.decide())
    surge(cluster, stuck_since(cluster, 31))
    cluster.carry_out(announced(cluster))
    cluster.pods[0] = leaving(cluster.pods[0])
    assert says(cluster.decide(), "Ready") == ("False", "Replacing")
    assert pace(cluster.decide()) == "Replace"
    del cluster.pods[0]
    assert says(cluster.decide(), "Ready") == ("False", "Unschedulable")


def test_an_announcement_that_is_taken_back_costs_no_pod() -> None:
    """A node came in between: the surge pod is no longer unschedulable."""
    cluster = rolling()
    surge(cluster, stuck_since(cluster, 31))
    cluster.carry_out(cluster.decide())
    cluster.befall({"containerStatuses": []}, 2)
    assert pace(cluster.decide()) == "Surge"


GPUS = "requests.nvidia.com/gpu"
QUOTA = f'pods "x" is forbidden: exceeded quota: gpus, requested: {GPUS}=1'


def refuse(cluster: ToyCluster, seconds: float, message: str) -> None:
    """The Deployment's controller says since when pods are refused."""
    deployment = cluster.children["Deployment", "smollm2"]
    since = (cluster.now - NOW).total_seconds() - seconds
    failure = condition("ReplicaFailure", "True", "FailedCreate", since, message=message)
    seen = {"observedGeneration": deployment["metadata"]["generation"], "conditions": [failure]}
    status = {**deployment.get("status", {}), **seen}
    cluster.children["Deployment", "smollm2"] = {**deployment, "status": status}


@pytest.mark.parametrize(
    ("message", "seconds", "expected"),
    [
        (QUOTA, 29, "Surge"),
        (QUOTA, 30, "Replace"),
        (f"{QUOTA}, used: {GPUS}=1, limited: {GPUS}=1", 30, "Replace"),
        (f"{QUOTA},pods=1, used: {GPUS}=0,pods=9, limited: {GPUS}=0,pods=9", 300, "Surge"),
        ("admission webhook denied the request: no", 300, "Surge"),
    ],
    ids=[
        "a quota gets its time",
        "a quota without room for one more is no room",
        "a quota that the old pods fill is no room",
        "a quota that is smaller than one pod stays so",
        "who refuses every pod refuses the next one, too",
    ],
)
def test_a_surge_pod_that_is_refused(message: str, seconds: float, expected: str) -> None:
    cluster = rolling()
    refuse(cluster, seconds, message)
    assert pace(announced(cluster)) == expected


def test_a_progress_deadline_shorter_than_the_patience_does_not_end_the_rollout() -> None:
    cluster = rolling(rollout={"progressDeadlineSeconds": 10})
    surge(cluster, stuck_since(cluster, 31))
    deployment = cluster.children["Deployment", "smollm2"]
    overdue = condition("Progressing", "False", "ProgressDeadlineExceeded")
    seen = {"observedGeneration": deployment["metadata"]["generation"], "conditions": [overdue]}
    cluster.children["Deployment", "smollm2"] = {**deployment, "status": seen}
    decided = announced(cluster)
    assert pace(decided) == "Replace"
    assert condition_of(decided, "Reconciling") and not condition_of(decided, "Stalled")
