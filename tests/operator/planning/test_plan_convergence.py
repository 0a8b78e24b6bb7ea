"""Plans lead somewhere, stay there, and lead there from wherever they were interrupted."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from observed_builder import NOW, child, condition_of, says, service, unschedulable
from toy_cluster import ToyCluster, settled, with_settings

FINAL_KINDS = [
    "ServiceAccount",
    "Service",
    "ControllerRevision",
    "Deployment",
    "PodDisruptionBudget",
]


def test_a_new_service_becomes_ready() -> None:
    cluster = ToyCluster(service(replicas=2))
    decided = cluster.settle()
    assert [one["kind"] for one in decided.children] == FINAL_KINDS
    assert says(decided, "Ready") == ("True", "AllReplicasReady")
    assert (decided.status or {})["readyReplicas"] == 2
    assert not condition_of(decided, "Reconciling") and not condition_of(decided, "Stalled")


def test_a_settled_service_writes_nothing_more() -> None:
    cluster = settled()
    num_writes, status = cluster.num_writes, cluster.service["status"]
    for _ in range(5):
        cluster.carry_out(cluster.decide())
        cluster.step(40)
    assert cluster.num_writes == num_writes
    assert cluster.service["status"] == status


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=12), st.sampled_from([1, 3]))
def test_interrupted_anywhere_it_ends_the_same(deaths: list[int], replicas: int) -> None:
    cluster = ToyCluster(service(replicas=replicas))
    for num_actions in deaths:
        cluster.carry_out(cluster.decide(), num_actions)
        cluster.step()
    decided = cluster.settle()
    undisturbed = settled(replicas=replicas)
    assert says(decided, "Ready") == ("True", "AllReplicasReady")
    assert cluster.hashes() == undisturbed.hashes()
    assert cluster.children.keys() - {"Job"} == undisturbed.children.keys()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                {"replicas": 3},
                {"replicas": 1},
                {"engine": {"maxNumSeqs": 4}},
                {"engine": {"maxNumSeqs": 2}},
                {"rollout": {"strategy": "Replace"}},
                {"runtimeVersion": "v2"},
                {"replicas": None, "scaling": {"maxReplicas": 2}},
                {"scaling": None},
            ]
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.integers(0, 5), max_size=6),
)
def test_any_history_of_edits_ends_in_what_the_last_spec_asks(
    edits: list[dict[str, Any]], deaths: list[int]
) -> None:
    cluster = settled()
    for number, edit in enumerate(edits):
        cluster.change(**edit)
        if "replicas" in cluster.service["spec"] and "scaling" in cluster.service["spec"]:
            cluster.change(scaling=None)
        for num_actions in deaths[number : number + 2]:
            cluster.carry_out(cluster.decide(), num_actions)
            cluster.step()
    decided = cluster.settle()
    assert says(decided, "Ready")[0] == "True"
    assert len(cluster.hashes()) == 1
    deployment = child(decided, "Deployment")
    assert deployment is not None
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    wanted = cluster.service["spec"].get("engine", {}).get("maxNumSeqs", 8)
    assert f"--max-num-seqs={wanted}" in arguments


@pytest.mark.parametrize(
    "edit",
    [
        {"replicas": 4},
        {"scaling": {"maxReplicas": 3}},
        {"rollout": {"strategy": "Replace", "progressDeadlineSeconds": 60}},
        {"drain": {"timeoutSeconds": 120}},
    ],
    ids=["replicas", "scaling", "rollout", "a default that is written out"],
)
def test_pods_are_not_replaced_by(edit: dict[str, Any]) -> None:
    cluster = settled()
    before = cluster.hashes()
    cluster.change(**edit)
    cluster.settle()
    assert cluster.hashes() == before


def test_a_new_operator_replaces_no_pod() -> None:
    cluster = settled()
    names = [one["metadata"]["name"] for one in cluster.pods]
    with_settings(cluster, runtime_image="reg.test/runtime:v9", operator_image="reg.test/op:v9")
    decided = cluster.settle()
    assert [one["metadata"]["name"] for one in cluster.pods] == names
    assert says(decided, "Ready") == ("True", "AllReplicasReady")


def test_an_edit_keeps_the_image_that_the_service_runs() -> None:
    cluster = settled()
    with_settings(cluster, runtime_image="reg.test/runtime:v9")
    cluster.change(engine={"maxNumSeqs": 3})
    cluster.settle()
    assert cluster.pods[0]["spec"]["containers"][0]["image"] == "reg.test/runtime:v1"


def test_a_pinned_version_that_served_stays_when_the_pin_goes() -> None:
    cluster = settled(runtimeVersion="v2")
    cluster.change(runtimeVersion=None)
    cluster.settle()
    assert cluster.pods[0]["spec"]["containers"][0]["image"] == "reg.test/runtime:v2"


def test_a_lost_status_costs_an_inspection_and_no_pod() -> None:
    cluster = settled()
    names = [one["metadata"]["name"] for one in cluster.pods]
    cluster.service["status"] = {}
    decided = cluster.settle()
    assert [one["metadata"]["name"] for one in cluster.pods] == names
    assert says(decided, "ModelInspected") == ("True", "Inspected")


def test_only_five_revisions_are_kept_and_the_newest_is_among_them() -> None:
    cluster = settled()
    for max_num_seqs in range(1, 8):
        cluster.change(engine={"maxNumSeqs": max_num_seqs})
        cluster.settle()
    numbers = [one["revision"] for one in cluster.observe().revisions]
    assert numbers == [4, 5, 6, 7, 8]


def test_going_back_to_an_older_spec_uses_its_revision_again() -> None:
    cluster = settled(engine={"maxNumSeqs": 2})
    before = cluster.hashes()
    cluster.change(engine={"maxNumSeqs": 3})
    cluster.settle()
    cluster.change(engine={"maxNumSeqs": 2})
    cluster.settle()
    assert cluster.hashes() == before
    assert [one["revision"] for one in cluster.observe().revisions] == [2, 3]


def test_a_changed_spec_that_does_not_fit_keeps_the_old_pods_serving() -> None:
    cluster = settled()
    before = cluster.hashes()
    cluster.change(vram={"budget": "64Mi"})
    decided = cluster.settle()
    assert cluster.hashes() == before
    assert says(decided, "Available") == ("True", "ReplicasReady")
    assert says(decided, "Fits") == ("False", "InsufficientMemory")
    assert says(decided, "Ready") == ("False", "InsufficientMemory")
    assert says(decided, "Stalled") == ("True", "InsufficientMemory")
    cluster.change(vram=None)
    assert says(cluster.settle(), "Ready")[0] == "True"


def test_a_rollout_without_room_for_a_surge_replaces_instead() -> None:
    cluster = settled(replicas=2)
    (old,) = cluster.hashes()

    def full(pod: Any) -> dict[str, Any] | None:
        is_surge = len(cluster.pods) > 2 and pod is cluster.pods[-1]
        since = (cluster.now - NOW).total_seconds() - 40
        return unschedulable("1 Insufficient memory.", since) if is_surge else None

    cluster.fate = full
    cluster.change(engine={"maxNumSeqs": 3})
    decided = cluster.settle()
    assert says(decided, "Ready")[0] == "True"
    assert old not in cluster.hashes() and len(cluster.pods) == 2
    deployment = child(decided, "Deployment")
    assert deployment and deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 1


def missing_image(pod: Any) -> dict[str, Any] | None:
    """The fate of pods whose image does not exist."""
    if not pod["spec"]["containers"][0]["image"].endswith("missing"):
        return None
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    return {"containerStatuses": [{"name": "runtime", "state": state}]}


@pytest.mark.parametrize(
    ("born_with", "mended_by", "image"),
    [
        ({"runtimeVersion": "missing"}, {"runtimeVersion": "v2"}, "reg.test/runtime:v2"),
        ({"runtimeVersion": "missing"}, {"runtimeVersion": None}, "reg.test/runtime:v1"),
        ({}, {"runtimeVersion": None}, "reg.test/runtime:v1"),
    ],
    ids=[
        "another version mends a version that does not exist",
        "without the pin the default serves",
        "without the pin what served before serves again",
    ],
)
def test_a_version_that_does_not_exist_blocks_nothing(
    born_with: dict[str, Any], mended_by: dict[str, Any], image: str
) -> None:
    cluster = ToyCluster(service(**born_with))
    cluster.fate = missing_image
    cluster.settle()
    cluster.change(runtimeVersion="missing")
    assert says(cluster.settle(), "Ready") == ("False", "ImagePullFailed")
    cluster.change(**mended_by)
    assert says(cluster.settle(), "Ready") == ("True", "AllReplicasReady")
    assert [one["spec"]["containers"][0]["image"] for one in cluster.pods] == [image]
