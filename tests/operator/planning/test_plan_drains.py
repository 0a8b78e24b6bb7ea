"""How a drain ended is judged and counted once, whatever made the pod go."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from forebay_operator.planned import Note, Plan, Tally
from observed_builder import at, condition, leaving, load, terminated, text
from toy_cluster import ToyCluster, settled

FINISHED = (Tally("drains", {"outcome": "finished"}),)
FORCED = (Tally("drains", {"outcome": "forced"}),)
DEADLINE = 140
"""Seconds after NOW; ten earlier the runtime has cut what it still held."""


def draining(**disruption: str) -> ToyCluster:
    """Two pods, of which the second has begun to leave and holds three requests."""
    cluster = settled(replicas=2)
    pod = leaving(cluster.pods[1], DEADLINE)
    if disruption:
        pod["status"]["conditions"].append(condition("DisruptionTarget", "True", **disruption))
    cluster.pods[1] = pod
    cluster.loads = {pod["metadata"]["uid"]: load(3)}
    return cluster


def go_on(cluster: ToyCluster, seconds: float = 0) -> Plan:
    if seconds:
        cluster.now = at(seconds)
    decided = cluster.decide()
    cluster.carry_out(decided)
    return decided


def end(cluster: ToyCluster, exit_code: int = 0, message: str = "") -> None:
    state = terminated(exit_code, message)
    cluster.befall({"containerStatuses": [{"name": "runtime", "state": state}]}, 1)


def name(cluster: ToyCluster) -> str:
    found: str = cluster.pods[1]["metadata"]["name"]
    return found


@pytest.mark.parametrize(
    ("exit_code", "message", "outcome", "words"),
    [
        (0, "", FINISHED, ""),
        (
            0,
            "forebay serve: answers cut: 2",
            FORCED,
            "cut what it still held (2) when its 120 s of drain.timeoutSeconds were over; raise it "
            "if answers take longer.",
        ),
        (
            137,
            "",
            FORCED,
            "did not finish what it held: it was ended with exit code 137, and held 3 requests "
            "when last asked.",
        ),
    ],
    ids=["it gave everything back", "its own time-out cut answers", "the kubelet killed it"],
)
def test_what_its_container_left_behind_tells(
    exit_code: int, message: str, outcome: tuple[Tally, ...], words: str
) -> None:
    cluster = draining()
    assert go_on(cluster).tallies == ()
    end(cluster, exit_code, message)
    decided = go_on(cluster)
    warning = Note("Warning", "DrainCutShort", f"Pod {name(cluster)} {words}")
    assert decided.tallies == outcome
    assert decided.notes == ((warning,) if words else ())
    assert go_on(cluster).tallies == ()
    del cluster.pods[1]
    assert go_on(cluster).tallies == ()


@pytest.mark.parametrize(
    ("seconds", "held", "outcome"),
    [
        (DEADLINE - 11, load(3), FINISHED),
        (DEADLINE - 10, load(3), FORCED),
        (DEADLINE, load(0), FINISHED),
        (DEADLINE, None, FORCED),
    ],
    ids=[
        "before its time was over",
        "when its time was over, with requests",
        "late, with nothing left",
        "late, and nobody knows what it held",
    ],
)
def test_a_pod_that_is_gone_before_anybody_looked_is_judged_by_the_time(
    seconds: float, held: Any, outcome: tuple[Tally, ...]
) -> None:
    cluster = draining()
    cluster.loads = {cluster.pods[1]["metadata"]["uid"]: held} if held else {}
    go_on(cluster)
    del cluster.pods[1]
    assert go_on(cluster, seconds).tallies == outcome
    assert go_on(cluster).tallies == ()


def test_a_pod_that_never_served_has_nothing_to_drain() -> None:
    cluster = settled(replicas=2)
    waits = {"phase": "Pending", "containerStatuses": [{"name": "runtime", "started": False}]}
    cluster.befall(waits, 1)
    cluster.pods[1] = leaving(cluster.pods[1])
    go_on(cluster)
    del cluster.pods[1]
    assert go_on(cluster).tallies == ()


def test_a_pod_that_is_seen_first_when_it_is_all_but_gone_was_not_cut() -> None:
    """A pod with a finalizer is there a moment longer, after the kubelet has let it go."""
    cluster = draining()
    cluster.loads = {}
    let_go = leaving(cluster.pods[1], 0)
    cluster.pods[1] = let_go | {"metadata": let_go["metadata"] | {"deletionGracePeriodSeconds": 0}}
    go_on(cluster)
    del cluster.pods[1]
    decided = go_on(cluster)
    assert (decided.tallies, decided.notes) == ((), ())


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("EvictionByEvictionAPI", "Evicted"),
        ("PreemptionByScheduler", "Preempted"),
        ("DeletionByTaintManager", "NodeTainted"),
        ("SomethingNew", "Evicted"),
    ],
)
def test_who_takes_a_pod_is_told_once_and_listed(told: str, reason: str) -> None:
    cluster = draining(reason=told, message="Eviction API: evicting")
    decided = go_on(cluster)
    assert [note.reason for note in decided.notes] == [reason]
    assert decided.notes[0].message.endswith(" (Eviction API: evicting).")
    assert [one["reason"] for one in (decided.status or {})["draining"]] == [reason]
    assert go_on(cluster).notes == ()


def test_a_pod_whose_node_is_gone_did_not_finish() -> None:
    cluster = draining(reason="DeletionByPodGC")
    assert go_on(cluster).tallies == FORCED
    del cluster.pods[1]
    assert go_on(cluster).tallies == ()


def shut_down(cluster: ToyCluster, exit_code: int) -> None:
    """What the kubelet of a node that shuts down leaves of a pod: no deletion, but an end."""
    state = terminated(exit_code)
    state["terminated"]["finishedAt"] = text((cluster.now - at(0)).total_seconds())
    told = condition("DisruptionTarget", "True", "TerminationByKubelet", message="Shutdown.")
    ended = {"containerStatuses": [{"name": "runtime", "state": state}], "conditions": [told]}
    cluster.befall({"phase": "Failed", **ended}, 1)


@pytest.mark.parametrize(("exit_code", "outcome"), [(0, FINISHED), (137, FORCED)])
def test_a_node_that_shuts_down_ends_its_pods_without_deleting_them(
    exit_code: int, outcome: tuple[Tally, ...]
) -> None:
    cluster = settled(replicas=2)
    cluster.now += timedelta(seconds=60)
    shut_down(cluster, exit_code)
    decided = go_on(cluster)
    assert decided.tallies == outcome
    assert decided.notes[0].reason == "NodeShutdown"
    assert go_on(cluster).tallies == ()


def test_what_ended_before_this_operator_began_was_anothers_to_count() -> None:
    cluster = settled(replicas=2)
    shut_down(cluster, 137)
    assert cluster.memory is not None
    cluster.memory = replace(cluster.memory, started_at=cluster.now)
    assert go_on(cluster).tallies == ()


def test_a_pod_of_an_older_template_leaves_for_a_newer_one() -> None:
    cluster = draining()
    cluster.change(engine={"maxNumSeqs": 7})
    assert [one["reason"] for one in (cluster.decide().status or {})["draining"]] == ["RolledOut"]
