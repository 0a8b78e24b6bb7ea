"""What Kubernetes backed off from is tried again soon after it is mended, and nothing else is
touched."""

from datetime import timedelta
from typing import Any

import pytest

from forebay_operator.planned import Plan
from observed_builder import (
    NOW,
    child,
    condition,
    leaving,
    pod,
    says,
    terminated,
    text,
    waiting,
)
from toy_cluster import HASH, ToyCluster, settled

MENDED = "forebay.dev/try-again-at"


def stuck(
    name: str, cluster: ToyCluster, reason: str = "CrashLoopBackOff", **more: Any
) -> dict[str, Any]:
    """A pod of the wanted template, a minute old, that failed 5 s before NOW and waits."""
    (digest,) = cluster.hashes()
    ended = {} if "Image" in reason else {"lastState": terminated()}
    container = {"state": waiting(reason), **ended, **more}
    one = pod(name, template=digest, created=-60, **container)
    one["status"]["startTime"] = text(-60)
    one["status"]["conditions"] = [condition("Ready", "False", since=-60)]
    return one


def serving(cluster: ToyCluster, since: float) -> None:
    """The first pod serves since then."""
    ready = condition("Ready", "True", since=since)
    cluster.pods[0]["status"] = cluster.pods[0]["status"] | {"conditions": [ready]}


def two(reason: str = "CrashLoopBackOff", **more: Any) -> ToyCluster:
    """A pod that serves since the other one failed."""
    cluster = settled(replicas=2)
    cluster.now = NOW
    cluster.pods[1] = stuck("second", cluster, reason, **more)
    serving(cluster, since=-1)
    return cluster


def replaced(decided: Plan) -> list[str]:
    return [one.name for one in decided.deletions if one.kind == "Pod"]


def test_a_pod_whose_sibling_began_to_serve_since_it_failed_is_tried_at_once() -> None:
    cluster = two()
    cluster.pods[1]["metadata"]["resourceVersion"] = "77"
    decided = cluster.decide()
    assert replaced(decided) == ["second"]
    assert [one.version for one in decided.deletions] == ["77"]
    (note,) = (one for one in decided.notes if one.reason == "PodReplaced")
    assert "of the same template began to serve since" in note.message


def test_a_pod_that_a_node_ended_long_ago_does_not_stand_in_the_way() -> None:
    cluster = two()
    (digest,) = cluster.hashes()
    cluster.pods.append(pod("evicted", template=digest, status={"phase": "Failed"}))
    assert replaced(cluster.decide()) == ["second"]


def say_mended(cluster: ToyCluster, moment: str) -> None:
    cluster.service["metadata"]["annotations"] = {MENDED: moment}


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull"])
def test_a_person_may_say_that_the_cause_is_mended(reason: str) -> None:
    cluster = settled()
    cluster.now = NOW
    cluster.pods[0] = stuck("only", cluster, reason)
    assert replaced(cluster.decide()) == []
    say_mended(cluster, text(-2))
    assert replaced(cluster.decide()) == ["only"]


@pytest.mark.parametrize(
    "moment",
    [text(-61), text(1), "yesterday", ""],
    ids=["before the pod was made", "in the future", "no time", "empty"],
)
def test_what_a_person_says_counts_for_pods_of_before_alone(moment: str) -> None:
    cluster = settled()
    cluster.now = NOW
    cluster.pods[0] = stuck("only", cluster)
    say_mended(cluster, moment)
    assert replaced(cluster.decide()) == []


def loading(cluster: ToyCluster) -> None:
    cluster.pods[1] = stuck("second", cluster, state={"running": {}})


def served_before(cluster: ToyCluster) -> None:
    unready = condition("Ready", "False", since=-20)
    cluster.pods[1]["status"]["conditions"] = [unready]


def going(cluster: ToyCluster) -> None:
    cluster.pods[1] = leaving(cluster.pods[1])


def another_on_its_way(cluster: ToyCluster) -> None:
    (digest,) = cluster.hashes()
    cluster.pods.append(pod("third", template=digest))


def another_going(cluster: ToyCluster) -> None:
    cluster.pods.append(leaving(stuck("third", cluster)))


def sibling_served_all_along(cluster: ToyCluster) -> None:
    serving(cluster, since=-300)


def of_old_template(cluster: ToyCluster) -> None:
    cluster.pods[1]["metadata"]["labels"] = {HASH: "old"}


def only_configured_wrongly(cluster: ToyCluster) -> None:
    state = waiting("CreateContainerConfigError", 'secret "s" not found')
    cluster.pods[1] = stuck("second", cluster, state=state)


@pytest.mark.parametrize(
    "spoil",
    [
        loading,
        served_before,
        going,
        another_on_its_way,
        another_going,
        sibling_served_all_along,
        of_old_template,
        only_configured_wrongly,
    ],
)
def test_a_pod_is_left_alone_that_is(spoil: Any) -> None:
    cluster = two()
    spoil(cluster)
    assert replaced(cluster.decide()) == []


def test_an_image_may_be_on_its_way_however_long_it_takes() -> None:
    """The kubelet says ImagePullBackOff until a pull has ended, also while it pulls again."""
    cluster = two("ImagePullBackOff")
    cluster.now += timedelta(hours=1)
    assert replaced(cluster.decide()) == []


@pytest.mark.parametrize(
    ("template_age", "wait"),
    [(60, 0.0), (100, 0.0), (180, 60.0), (3600, 240.0)],
    ids=["the first", "after 40 s", "after two minutes", "after an hour"],
)
def test_the_time_between_tries_doubles_up_to_five_minutes(template_age: int, wait: float) -> None:
    cluster = two()
    (digest,) = cluster.hashes()
    made = {"name": "rs", "creationTimestamp": text(-template_age), "labels": {HASH: digest}}
    cluster.replica_sets = ({"metadata": {**made, "uid": "rs"}, "spec": {"replicas": 2}},)
    decided = cluster.decide()
    assert replaced(decided) == ([] if wait else ["second"])
    if wait:
        assert decided.look_again_seconds is not None
        assert decided.look_again_seconds <= wait


QUOTA = 'pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1'


def refused(message: str, seconds: float) -> ToyCluster:
    cluster = settled()
    cluster.now = NOW
    deployment = cluster.children["Deployment", "smollm2"]
    failure = condition("ReplicaFailure", "True", "FailedCreate", -seconds, message=message)
    status = deployment["status"] | {"conditions": [failure], "readyReplicas": 0}
    cluster.children["Deployment", "smollm2"] = {**deployment, "status": status}
    return cluster


def nudges(cluster: ToyCluster, seconds: int) -> set[str]:
    """What the Deployment is told in the course of some time, looked at every second."""
    told = set()
    for _ in range(seconds):
        cluster.now += timedelta(seconds=1)
        deployment = child(cluster.decide(), "Deployment")
        assert deployment is not None
        told.add(deployment["metadata"]["annotations"]["forebay.dev/try-again"])
    return told


@pytest.mark.parametrize(
    ("refused_for", "most"),
    [(60, 7), (3600, 2)],
    ids=["every ten seconds at first", "every minute later"],
)
def test_a_replica_set_that_is_refused_for_unseen_reasons_is_woken(
    refused_for: float, most: int
) -> None:
    told = nudges(refused("admission webhook denied the request: no", refused_for), 60)
    assert 1 < len(told) <= most


def test_a_try_that_its_controller_has_not_seen_yet_changes_nothing_of_what_is_told() -> None:
    """Each try is a change of the Deployment; told anew each time, it would flap for ever."""
    cluster = refused(QUOTA, 60)
    first = cluster.decide()
    assert says(first, "Stalled") == ("True", "QuotaExceeded")
    cluster.carry_out(first)
    deployment = cluster.children["Deployment", "smollm2"]
    metadata = {**deployment["metadata"], "generation": deployment["metadata"]["generation"] + 1}
    cluster.children["Deployment", "smollm2"] = {**deployment, "metadata": metadata}
    second = cluster.decide()
    assert (second.status or {})["conditions"] == (first.status or {})["conditions"]
    assert child(second, "Deployment") == child(first, "Deployment")


def quota(used: str) -> dict[str, Any]:
    status = {"hard": {"pods": "1"}, "used": {"pods": used}}
    return {"metadata": {"name": "small"}, "status": status}


def test_a_replica_set_that_a_quota_refuses_is_woken_when_the_quota_changes() -> None:
    cluster = refused(QUOTA, 3600)
    cluster.resource_quotas = (quota("1"),)
    before = nudges(cluster, 1)
    assert len(before | nudges(cluster, 50)) == 1
    cluster.resource_quotas = (quota("0"),)
    assert nudges(cluster, 1) != before
