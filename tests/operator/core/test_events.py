"""When warnings of others are asked for, and which of them are a service's own."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.events import SETTLING_SECONDS, read_warnings, seconds_until_suspicious
from forebay_operator.observed import Key, Observed, Settings

BORN = datetime(2026, 1, 1, tzinfo=UTC)
OLD = BORN + timedelta(seconds=60)


def item(status: dict[str, Any], uid: str = "u", **spec: Any) -> dict[str, Any]:
    born = BORN.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": uid, "uid": uid, "creationTimestamp": born}
    return {"metadata": metadata, "status": status, "spec": spec}


def observed(**parts: Any) -> Observed:
    return Observed(Key("team", "llama"), Settings("r", "o"), {}, **parts)


PENDING, RUNNING = item({"phase": "Pending"}), item({"phase": "Running"})
JOB = item({"active": 1})


@pytest.mark.parametrize(
    ("parts", "wait"),
    [
        ({}, None),
        ({"pods": (RUNNING,)}, None),
        ({"pods": (PENDING,)}, 0.0),
        ({"job_pods": (PENDING,), "jobs": (JOB,)}, 0.0),
        ({"jobs": (JOB,)}, 0.0),
        ({"jobs": (item({"failed": 1}),)}, None),
        ({"replica_sets": (item({"replicas": 1}, replicas=2),)}, 0.0),
        ({"replica_sets": (item({"replicas": 2}, replicas=2),)}, None),
    ],
    ids=[
        "nothing there",
        "a running pod",
        "a pending pod",
        "a pending inspection",
        "a Job without a pod",
        "a Job that failed",
        "a ReplicaSet that lacks a pod",
        "a whole ReplicaSet",
    ],
)
def test_only_what_is_incomplete_is_suspicious(parts: Any, wait: float | None) -> None:
    assert seconds_until_suspicious(observed(**parts), OLD) == wait


def test_what_is_young_is_given_time() -> None:
    soon = BORN + timedelta(seconds=1)
    assert seconds_until_suspicious(observed(pods=(PENDING,)), soon) == SETTLING_SECONDS - 1


async def test_only_own_warnings_are_read_oldest_first() -> None:
    cluster = FakeCluster()
    for name, uid, at in (("b", "u", "2"), ("a", "u", "1"), ("c", "another", "3")):
        times = {"lastTimestamp": at, "involvedObject": {"uid": uid}}
        metadata = {"namespace": "team", "name": name}
        cluster.add({"kind": "Event", "metadata": metadata, **times})
    found = await read_warnings(cluster, observed(pods=(PENDING,)))
    assert [one["metadata"]["name"] for one in found] == ["a", "b"]
    assert cluster.requests == [("list", "Event", "type=Warning")]
