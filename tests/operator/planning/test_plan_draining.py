"""Before replicas shrink the idlest pods are marked; those that leave are listed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from observed_builder import leaving, load, text
from toy_cluster import ToyCluster, settled


def shrinking(num_pods: int, replicas: int) -> ToyCluster:
    cluster = settled(replicas=num_pods)
    cluster.change(replicas=replicas)
    return cluster


def names(cluster: ToyCluster) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.pods]


def say(cluster: ToyCluster, *loads: Any) -> None:
    uids = (one["metadata"]["uid"] for one in cluster.pods)
    cluster.loads = {uid: said for uid, said in zip(uids, loads, strict=True) if said is not None}


def test_pods_are_ranked_by_what_they_hold_before_the_replicas_shrink() -> None:
    cluster = shrinking(3, 2)
    say(cluster, load(5, 2), load(0, 0), load(3, 0))
    first, second, third = names(cluster)
    assert dict(cluster.decide().deletion_costs) == {first: 2, second: 0, third: 1}


def test_a_pod_that_does_not_answer_is_spared() -> None:
    cluster = shrinking(2, 1)
    say(cluster, load(answered=False), load(9, 9))
    first, second = names(cluster)
    assert dict(cluster.decide().deletion_costs) == {first: 1, second: 0}


def test_pods_that_are_not_ready_need_no_cost_as_they_go_first() -> None:
    cluster = shrinking(2, 1)
    cluster.befall({"containerStatuses": []})
    assert [name for name, _ in cluster.decide().deletion_costs] == [names(cluster)[1]]


@pytest.mark.parametrize("replicas", [2, 3], ids=["replicas stay", "replicas grow"])
def test_nothing_is_marked_while(replicas: int) -> None:
    cluster = shrinking(2, replicas)
    assert cluster.decide().deletion_costs == ()


def draining(*loads: Any) -> ToyCluster:
    cluster = settled(replicas=2)
    cluster.pods[1] = leaving(cluster.pods[1], deadline=130)
    say(cluster, *loads)
    return cluster


def listed(cluster: ToyCluster) -> Any:
    return (cluster.decide().status or {}).get("draining", [])


def test_a_leaving_pod_is_listed_with_what_it_holds_and_its_deadline() -> None:
    cluster = draining(load(), load(3, 1))
    (entry,) = listed(cluster)
    assert entry == {
        "pod": names(cluster)[1],
        "reason": "Removed",
        "inFlight": 4,
        "deadline": text(130),
    }


def test_a_leaving_pod_that_does_not_answer_is_listed_without_a_number() -> None:
    (entry,) = listed(draining(load(), None))
    assert entry.keys() == {"pod", "reason", "deadline"}


def test_a_number_that_was_missing_is_told_as_soon_as_it_is_known() -> None:
    cluster = draining(load(), None)
    cluster.carry_out(cluster.decide())
    cluster.now += timedelta(seconds=2)
    say(cluster, load(), load(3))
    assert [entry["inFlight"] for entry in listed(cluster)] == [3]


def test_a_pod_that_ended_is_no_longer_listed() -> None:
    cluster = draining(load(), load())
    cluster.befall({"phase": "Succeeded"}, 1)
    assert listed(cluster) == []


def test_what_a_leaving_pod_holds_is_written_every_half_minute() -> None:
    cluster = draining(load(), load(40))
    seen = []
    for num_running in range(40, 10, -1):
        say(cluster, load(), load(num_running))
        decided = cluster.decide()
        seen.append((decided.status or {})["draining"][0]["inFlight"])
        cluster.carry_out(decided)
        cluster.now += timedelta(seconds=2)
    assert len(set(seen)) == 3


def test_a_number_that_changed_is_told_when_live_numbers_may_change() -> None:
    cluster = draining(load(), load(3))
    cluster.now += timedelta(seconds=60)
    cluster.carry_out(cluster.decide())
    cluster.now += timedelta(seconds=10)
    say(cluster, load(), load(2))
    decided = cluster.decide()
    assert (decided.status or {})["draining"][0]["inFlight"] == 3
    assert decided.look_again_seconds == pytest.approx(20)
    cluster.carry_out(decided)
    cluster.now += timedelta(seconds=20)
    assert [entry["inFlight"] for entry in listed(cluster)] == [2]


def test_a_pod_that_begins_to_leave_is_listed_at_once() -> None:
    cluster = settled(replicas=2)
    assert cluster.memory is not None
    cluster.memory = replace(cluster.memory, reported_at=cluster.now)
    cluster.pods[1] = leaving(cluster.pods[1])
    assert [entry["pod"] for entry in listed(cluster)] == [names(cluster)[1]]
