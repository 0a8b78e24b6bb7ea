"""Somebody sets the Deployment's replicas: they are put back, and the right object is named."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from forebay_operator.planned import Plan
from observed_builder import child, condition_of, load
from toy_cluster import ToyCluster, settled

HPA = "kube-controller-manager"


def set_by(cluster: ToyCluster, manager: str, replicas: int) -> None:
    """Somebody scales the Deployment."""
    deployment = cluster.children["Deployment", "smollm2"]
    cluster.children["Deployment", "smollm2"] = {
        **deployment,
        "metadata": {**deployment["metadata"], "managedFields": [{"manager": manager}]},
        "spec": {**deployment["spec"], "replicas": replicas},
    }


def put_back(cluster: ToyCluster, seconds: float = 0) -> Plan:
    """Decide and apply; forcing a field takes it away from its other owners."""
    cluster.now += timedelta(seconds=seconds)
    decided = cluster.decide()
    cluster.carry_out(decided)
    deployment = cluster.children["Deployment", "smollm2"]
    if deployment["spec"]["replicas"] == cluster.service["spec"].get("replicas"):
        deployment["metadata"].pop("managedFields", None)
    return decided


def told(decided: Plan) -> int:
    deployment: dict[str, Any] | None = child(decided, "Deployment")
    return deployment["spec"]["replicas"] if deployment else -1


def test_what_a_person_sets_is_put_back_and_said_once() -> None:
    cluster = settled(replicas=2)
    set_by(cluster, "kubectl", 5)
    decided = put_back(cluster)
    assert told(decided) == 2
    (note,) = decided.notes
    assert (note.reason, note.message) == (
        "ReplicasPutBack",
        "kubectl set the replicas of Deployment smollm2, which follow this InferenceService and "
        "were put back; scale InferenceService smollm2 of forebay.dev/v1alpha1 instead.",
    )
    assert "ReplicasPutBack" not in [note.reason for note in put_back(cluster).notes]
    assert not condition_of(decided, "AutoscalerMisdirected")


def test_what_a_person_sets_beside_our_scaling_is_put_back_too() -> None:
    cluster = settled(scaling={"maxReplicas": 4})
    cluster.loads = {one["metadata"]["uid"]: load(1) for one in cluster.pods}
    set_by(cluster, "kubectl", 4)
    decided = put_back(cluster)
    assert told(decided) == 1
    assert [note.message[-26:] for note in decided.notes] == [" instead by its spec.scaling."[-26:]]


@pytest.mark.parametrize(
    ("spec", "way"),
    [
        (
            {"replicas": 2},
            "; point its scaleTargetRef at InferenceService smollm2 of forebay.dev/v1alpha1.",
        ),
        (
            {"scaling": {"maxReplicas": 4}},
            "; remove it, or remove spec.scaling and point its scaleTargetRef at "
            "InferenceService smollm2 of forebay.dev/v1alpha1.",
        ),
    ],
    ids=["replicas", "scaling"],
)
def test_an_autoscaler_of_the_deployment_is_told_its_right_target(
    spec: dict[str, Any], way: str
) -> None:
    cluster = settled(**spec)
    set_by(cluster, HPA, 4)
    decided = put_back(cluster)
    said = condition_of(decided, "AutoscalerMisdirected")
    assert (said["status"], said["reason"]) == ("True", "ScalesDeployment")
    assert said["message"].endswith(way)
    assert [note.message for note in decided.notes] == [said["message"]]


def test_an_autoscaler_of_the_deployment_is_not_fought_every_few_seconds() -> None:
    """An operator and an autoscaler once fought 41 times in 14 minutes."""
    cluster = settled(replicas=2)
    turns = messages = 0
    for _ in range(14 * 60 // 15):
        set_by(cluster, HPA, 4)
        decided = put_back(cluster, 15)
        turns += told(decided) == 2
        messages += len(decided.notes)
    assert turns == messages == 3


def test_while_its_number_stands_the_operator_looks_again_when_it_ends() -> None:
    cluster = settled(replicas=2)
    set_by(cluster, HPA, 4)
    put_back(cluster)
    set_by(cluster, HPA, 4)
    decided = put_back(cluster, 100)
    assert told(decided) == 4
    assert decided.look_again_seconds is not None and decided.look_again_seconds <= 200
    assert told(put_back(cluster, 200)) == 2


def test_the_condition_goes_when_the_autoscaler_has_been_silent_for_a_while() -> None:
    cluster = settled(replicas=2)
    set_by(cluster, HPA, 4)
    put_back(cluster)
    assert condition_of(put_back(cluster, 899), "AutoscalerMisdirected")
    assert not condition_of(put_back(cluster, 1), "AutoscalerMisdirected")


def test_a_new_operator_remembers_by_the_condition() -> None:
    cluster = settled(replicas=2)
    set_by(cluster, HPA, 4)
    before = condition_of(put_back(cluster), "AutoscalerMisdirected")
    assert cluster.memory is not None
    cluster.memory = replace(
        cluster.memory, contest=None, is_fresh=True, started_at=cluster.now + timedelta(seconds=60)
    )
    assert condition_of(put_back(cluster, 60), "AutoscalerMisdirected") == before
    set_by(cluster, HPA, 4)
    assert told(put_back(cluster, 10)) == 4


def test_a_deployment_that_follows_is_nobodys_contest() -> None:
    cluster = settled(replicas=2)
    set_by(cluster, HPA, 2)
    cluster.change(replicas=2)
    decided = cluster.decide()
    assert (told(decided), decided.notes) == (2, ())
