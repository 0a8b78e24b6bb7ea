"""Status is honest, whole and still: conditions of this generation, stable times, few events."""

from typing import Any

import pytest

from forebay_operator.planned import Note, Plan
from forebay_operator.planning import plan
from observed_builder import (
    NOW,
    SMOLLM2,
    condition_of,
    known_model,
    observed,
    says,
    service,
    terminated,
    text,
    unschedulable,
)
from toy_cluster import ToyCluster, settled


def test_a_ready_service_says_all_that_a_client_needs() -> None:
    status = settled(replicas=2).service["status"]
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}
    assert told == {
        "ModelInspected": ("True", "Inspected"),
        "Fits": ("True", "Fits"),
        "PodsCreated": ("True", "PodsCreated"),
        "Progressing": ("True", "Complete"),
        "Available": ("True", "ReplicasReady"),
        "Ready": ("True", "AllReplicasReady"),
    }
    rest = {name: value for name, value in status.items() if name not in ("conditions", "plan")}
    assert rest == {
        "observedGeneration": 1,
        "replicas": 2,
        "readyReplicas": 2,
        "selector": "forebay.dev/inference-service=smollm2",
        "url": "http://smollm2.team-a.svc/v1",
        "model": rest["model"],
    }
    assert rest["model"]["revision"] == SMOLLM2.revision


def test_every_condition_speaks_of_the_present_generation() -> None:
    cluster = settled()
    cluster.change(replicas=2)
    conditions = (cluster.decide().status or {})["conditions"]
    assert {entry["observedGeneration"] for entry in conditions} == {2}


def test_a_time_moves_only_when_a_status_flips() -> None:
    cluster = settled()
    before = condition_of(cluster.decide(), "Available")["lastTransitionTime"]
    cluster.step(60)
    assert condition_of(cluster.decide(), "Available")["lastTransitionTime"] == before
    cluster.befall({"containerStatuses": []})
    flipped = (cluster.now - NOW).total_seconds()
    assert condition_of(cluster.decide(), "Available")["lastTransitionTime"] == text(flipped)


def deployment(cluster: ToyCluster) -> dict[str, Any]:
    return cluster.children["Deployment", "smollm2"]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("status", {"readyReplicas": 1}),
        ("status", {"updatedReplicas": 1}),
        ("status", {"replicas": 3}),
        ("status", {"availableReplicas": 1}),
        ("spec", {"replicas": 3}),
    ],
    ids=[
        "a replica is not ready",
        "a replica is of an older template",
        "an old replica is still there",
        "a replica is not available",
        "the Deployment asks for another number",
    ],
)
def test_it_is_not_ready_while(part: str, change: dict[str, int]) -> None:
    cluster = settled(replicas=2)
    cluster.children["Deployment", "smollm2"] = {
        **deployment(cluster),
        part: deployment(cluster)[part] | change,
    }
    assert says(cluster.decide(), "Ready")[0] == "False"


def test_while_the_controller_has_not_seen_the_deployment_its_pods_decide() -> None:
    """Another pace or deadline does not take Ready away; another template does."""
    cluster = settled(replicas=2)
    stale = deployment(cluster)["status"] | {"observedGeneration": 0}
    cluster.children["Deployment", "smollm2"] = {**deployment(cluster), "status": stale}
    assert says(cluster.decide(), "Ready")[0] == "True"
    cluster.pods[0]["metadata"]["labels"]["forebay.dev/template-hash"] = "older"
    assert says(cluster.decide(), "Ready")[0] == "False"


@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_it_is_not_ready_without_its(kind: str) -> None:
    cluster = settled()
    del cluster.children[kind, "smollm2"]
    assert says(cluster.decide(), "Ready")[0] == "False"


def test_in_the_decision_that_changes_the_template_it_is_not_ready_any_more() -> None:
    cluster = settled()
    cluster.change(engine={"maxNumSeqs": 3})
    decided = cluster.decide()
    assert says(decided, "Ready")[0] == "False"
    assert says(decided, "Available")[0] == "True"


def test_while_a_new_model_is_read_the_old_pods_are_no_complete_rollout() -> None:
    cluster = settled()
    cluster.change(model={"uri": "oci://reg.test/other:1"})
    decided = cluster.decide()
    assert says(decided, "Progressing") == ("True", "Inspecting")
    assert says(decided, "Available") == ("True", "ReplicasReady")


def test_pods_of_an_older_template_do_not_count_for_this_generation() -> None:
    """Right after the write the Deployment's counts still speak of the template before."""
    cluster = settled()
    cluster.change(engine={"maxModelLen": 1024})
    cluster.carry_out(cluster.decide())
    decided = cluster.decide()
    assert says(decided, "Ready") == ("False", "RollingOut")
    assert (
        "1 replica is wanted, pods of this generation: 0"
        in condition_of(decided, "Ready")["message"]
    )


def test_no_replicas_are_as_ready_as_can_be() -> None:
    decided = settled(replicas=0).decide()
    assert says(decided, "Ready") == ("True", "ScaledToZero")
    assert says(decided, "Available") == ("False", "ScaledToZero")


def test_before_a_plan_there_is_no_word_of_pods() -> None:
    decided = plan(observed(), NOW)
    types = [entry["type"] for entry in (decided.status or {})["conditions"]]
    assert types == ["ModelInspected", "Available", "Ready", "Reconciling"]


def reasons(notes: tuple[Note, ...]) -> list[tuple[str, str]]:
    return [(note.type, note.reason) for note in notes]


def told_over(cluster: ToyCluster, most: int = 10) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for _ in range(most):
        decided: Plan = cluster.decide()
        found += reasons(decided.notes)
        cluster.carry_out(decided)
        cluster.step()
    return found


def test_a_life_is_told_in_three_events() -> None:
    pinned = {"uri": f"oci://reg.test/smollm2@sha256:{64 * 'a'}"}
    assert told_over(ToyCluster(service(model=pinned))) == [
        ("Normal", "Inspected"),
        ("Normal", "Fits"),
        ("Normal", "AllReplicasReady"),
    ]


def test_a_failure_and_its_mending_are_told_once_each() -> None:
    cluster = settled()
    healthy = cluster.pods[0]["status"]
    killed = terminated(137, reason="OOMKilled")
    broken = {"containerStatuses": [{"name": "runtime", "state": killed}]}
    cluster.fate = lambda pod: broken
    assert told_over(cluster) == [("Warning", "OOMKilled")]
    cluster.fate = lambda pod: healthy
    assert told_over(cluster) == [("Normal", "AllReplicasReady")]


def test_two_failures_are_told_apart() -> None:
    cluster = settled()
    told = []
    for status in (
        unschedulable("0/1 nodes are available: 1 Too many pods."),
        {"containerStatuses": [{"name": "runtime", "state": terminated(1)}]},
    ):
        cluster.befall(status)
        decided = cluster.decide()
        told += reasons(decided.notes)
        cluster.carry_out(decided)
    assert told == [("Warning", "Unschedulable"), ("Warning", "ContainerCrashed")]


def test_a_broken_record_of_the_model_is_read_anew() -> None:
    broken = known_model() | {"inspection": "{"}
    decided = plan(observed(service(status={"model": broken})), NOW)
    assert says(decided, "ModelInspected") == ("Unknown", "Inspecting")
