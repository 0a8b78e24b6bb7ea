"""When warnings of others are asked for, and which of them are a service's own."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.events import WarningReader, suspect_since
from forebay_operator.observed import Key, Observed, Settings
from forebay_operator.shared_lists import READ_AGAIN_SECONDS

BORN = datetime(2026, 1, 1, tzinfo=UTC)


def item(status: dict[str, Any], uid: str = "u", **spec: Any) -> dict[str, Any]:
    born = BORN.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": uid, "uid": uid, "creationTimestamp": born}
    return {"metadata": metadata, "status": status, "spec": spec}


def observed(**parts: Any) -> Observed:
    return Observed(Key("team", "llama"), Settings("r", "o"), {}, **parts)


PENDING, RUNNING = item({"phase": "Pending"}), item({"phase": "Running"})
JOB = item({"active": 1})


def running(**container: Any) -> dict[str, Any]:
    return item({"phase": "Running", "containerStatuses": [container]})


@pytest.mark.parametrize(
    ("parts", "is_suspect"),
    [
        ({}, False),
        ({"pods": (RUNNING,)}, False),
        ({"pods": (PENDING,)}, True),
        ({"pods": (running(started=False, ready=False, restartCount=0),)}, False),
        ({"pods": (running(started=True, ready=False, restartCount=0),)}, True),
        ({"pods": (running(started=False, ready=False, restartCount=2),)}, True),
        ({"pods": (running(started=True, ready=True, restartCount=2),)}, False),
        ({"job_pods": (PENDING,), "jobs": (JOB,)}, True),
        ({"jobs": (JOB,)}, True),
        ({"jobs": (item({"failed": 1}),)}, False),
        ({"replica_sets": (item({"replicas": 1}, replicas=2),)}, True),
        ({"replica_sets": (item({"replicas": 2}, replicas=2),)}, False),
    ],
    ids=[
        "nothing there",
        "a running pod",
        "a pending pod",
        "a pod that loads",
        "a pod that started and is not ready",
        "a pod that was restarted",
        "a pod that serves again",
        "a pending inspection",
        "a Job without a pod",
        "a Job that failed",
        "a ReplicaSet that lacks a pod",
        "a whole ReplicaSet",
    ],
)
def test_only_what_is_incomplete_is_suspect(parts: Any, is_suspect: bool) -> None:
    assert suspect_since(observed(**parts)) == (BORN if is_suspect else None)


async def test_only_own_warnings_are_read_oldest_first() -> None:
    cluster = FakeCluster()
    for name, uid, at in (("b", "u", "2"), ("a", "u", "1"), ("c", "another", "3")):
        times = {"lastTimestamp": at, "involvedObject": {"uid": uid}}
        metadata = {"namespace": "team", "name": name}
        cluster.add({"kind": "Event", "metadata": metadata, **times})
    found = await WarningReader(cluster).read(observed(pods=(PENDING,)))
    assert [one["metadata"]["name"] for one in found] == ["a", "b"]
    assert cluster.requests == [("list", "Event", "type=Warning")]


async def test_services_of_a_namespace_share_one_list_for_a_while() -> None:
    cluster, now = FakeCluster(), [0.0]
    reader = WarningReader(cluster, lambda: now[0])
    for now[0] in (0.0, 1.0, 2.0, READ_AGAIN_SECONDS, READ_AGAIN_SECONDS + 1.0):
        await reader.read(observed(pods=(PENDING,)))
    assert len(cluster.requests) == 2
