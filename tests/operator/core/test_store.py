"""The store never goes back, and knows whose an object is."""

from typing import Any

import pytest

from forebay_operator.cluster import Listing
from forebay_operator.kinds import (
    DEPLOYMENT,
    INFERENCE_SERVICE,
    NODE,
    POD,
    REPLICA_SET,
    RESOURCE_SLICE,
)
from forebay_operator.observed import Key
from forebay_operator.store import Store, Written

KEY = Key("team", "llama")


def item(kind: str, name: str, version: int, uid: str = "", **metadata: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "labels": {}, **metadata}
    own = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": kind, "metadata": {**metadata, **own}, "spec": {}}


def owner(
    name: str, kind: str = "InferenceService", version: str = "forebay.dev/v1alpha1"
) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True}
    return {"ownerReferences": [reference]}


@pytest.mark.parametrize(
    ("thing", "keys"),
    [
        (item("InferenceService", "llama", 1), (KEY,)),
        (item("Deployment", "llama", 1, **owner("llama")), (KEY,)),
        (item("Pod", "p", 1, labels={"forebay.dev/inference-service": "llama"}), (KEY,)),
        (item("Pod", "p", 1, labels={"forebay.dev/inspection-of": "llama"}), (KEY,)),
        (
            item(
                "Pod",
                "p",
                1,
                labels={"forebay.dev/inference-service": "llama"},
                **owner("llama-7c9", "ReplicaSet"),
            ),
            (KEY,),
        ),
        (item("Deployment", "other", 1, **owner("other", "Something")), ()),
        (item("Deployment", "d", 1, **owner("llama", version="serving.kserve.io/v1beta1")), ()),
        (item("Pod", "p", 1), ()),
    ],
    ids=[
        "a service speaks of itself",
        "a child speaks of its controller",
        "a serving pod speaks of its label's service",
        "an inspecting pod speaks of its label's service",
        "a pod's ReplicaSet does not hide its service",
        "another kind of owner is no service",
        "a kind of the same name in another group is no service",
        "an unlabelled pod speaks of nobody",
    ],
)
def test_an_event_concerns_its_service(thing: dict[str, Any], keys: tuple[Key, ...]) -> None:
    assert Store().put(thing) == keys


def test_a_newer_version_replaces_an_older_one_and_an_older_one_is_ignored() -> None:
    store = Store()
    store.put(item("Deployment", "d", 9))
    assert store.put(item("Deployment", "d", 8, **owner("llama"))) == ()
    assert store.put(item("Deployment", "d", 10, **owner("llama"))) == (KEY,)
    assert store.put(item("Deployment", "d", 10, **owner("llama"))) == ()


def test_versions_are_numbers_not_words() -> None:
    store = Store()
    store.put(item("Deployment", "d", 9))
    store.put(item("Deployment", "d", 10))
    found = store.find(DEPLOYMENT, "team", "d")
    assert found is not None and found["metadata"]["resourceVersion"] == "10"


def test_a_deleted_object_does_not_return_from_an_older_list() -> None:
    store = Store()
    store.put(item("Pod", "p", 5, **owner("llama")))
    assert store.drop(item("Pod", "p", 6)) == (KEY,)
    assert store.put(item("Pod", "p", 5, **owner("llama"))) == ()
    assert store.find(POD, "team", "p") is None


def test_an_object_that_only_lost_and_regained_its_label_returns() -> None:
    store = Store()
    store.put(item("Deployment", "d", 5, **owner("llama")))
    assert store.drop(item("Deployment", "d", 6, **owner("llama"))) == (KEY,)
    assert store.put(item("Deployment", "d", 6, **owner("llama"))) == (KEY,)
    assert store.put(item("Deployment", "d", 7, **owner("llama"))) == (KEY,)


def test_an_object_that_was_asked_for_and_is_gone_never_returns() -> None:
    store = Store()
    store.bury("uid-p")
    assert store.put(item("Pod", "p", 99, **owner("llama"))) == ()


def test_a_late_deletion_does_not_take_a_newer_namesake() -> None:
    store = Store()
    store.put(item("Pod", "p", 9, uid="new"))
    store.drop(item("Pod", "p", 7, uid="old"))
    assert store.find(POD, "team", "p") is not None


def test_children_come_oldest_first_and_leave_with_their_deletion() -> None:
    store = Store()
    young = item("Pod", "a", 1, creationTimestamp="2026-01-02T00:00:00Z", **owner("llama"))
    old = item("Pod", "b", 2, creationTimestamp="2026-01-01T00:00:00Z", **owner("llama"))
    store.put(young)
    store.put(old)
    store.put(item("Deployment", "d", 3, **owner("llama")))
    assert [one["metadata"]["name"] for one in store.children(KEY, POD)] == ["b", "a"]
    store.drop(old)
    assert [one["metadata"]["name"] for one in store.children(KEY, POD)] == ["a"]


def test_an_object_that_changes_hands_concerns_both_owners() -> None:
    store = Store()
    store.put(item("Pod", "p", 1, **owner("llama")))
    assert set(store.put(item("Pod", "p", 2, **owner("other")))) == {KEY, Key("team", "other")}
    assert store.children(KEY, POD) == ()


WRITTEN = Written(DEPLOYMENT, "team", "d", "uid-d", 7)
DELETED = Written(DEPLOYMENT, "team", "d", "uid-d", None)


@pytest.mark.parametrize(
    ("seen", "written", "is_seen"),
    [
        ([], WRITTEN, False),
        ([item("Deployment", "d", 6)], WRITTEN, False),
        ([item("Deployment", "d", 7)], WRITTEN, True),
        ([item("Deployment", "d", 8)], WRITTEN, True),
        ([item("Deployment", "d", 6, uid="newer")], WRITTEN, True),
        ([item("Deployment", "d", 7)], DELETED, False),
        ([], DELETED, True),
        ([item("Deployment", "d", 9, uid="newer")], DELETED, True),
    ],
    ids=[
        "nothing seen",
        "an older version",
        "the version",
        "a newer version",
        "a namesake after it",
        "a deletion that did not come back",
        "a deletion that did",
        "a deletion and a namesake after it",
    ],
)
def test_own_writes_are_recognised(seen: list[Any], written: Written, is_seen: bool) -> None:
    store = Store()
    for one in seen:
        store.put(one)
    assert store.has_seen(written) is is_seen


def test_a_write_to_an_object_that_was_deleted_since_counts_as_seen() -> None:
    store = Store()
    store.drop(item("Deployment", "d", 9))
    assert store.has_seen(WRITTEN)


def test_a_full_list_shows_what_is_missing_and_what_is_a_ghost() -> None:
    store = Store()
    for name, version in (("same", 1), ("behind", 2), ("ghost", 3), ("born later", 50)):
        store.put(item("Pod", name, version))
    listed = (item("Pod", "same", 1), item("Pod", "behind", 9), item("Pod", "missing", 8))
    behind = store.difference(Listing(POD, listed, resource_version=20))
    assert [one["metadata"]["name"] for one in behind.newer] == ["behind", "missing"]
    assert [one["metadata"]["name"] for one in behind.ghosts] == ["ghost"]


def test_a_list_of_one_namespace_says_nothing_of_others() -> None:
    store = Store()
    store.put(item("Pod", "elsewhere", 1, namespace="other"))
    assert not store.difference(Listing(POD, (), 20), "team")


def test_managed_fields_are_not_kept() -> None:
    store = Store()
    store.put(item("Deployment", "d", 1, managedFields=[{"manager": "x"}]))
    found = store.find(DEPLOYMENT, "team", "d")
    assert found is not None and "managedFields" not in found["metadata"]


def test_of_managed_fields_only_who_else_owns_a_deployments_replicas_is_kept() -> None:
    replicas = {"f:spec": {"f:replicas": {}}}
    fields = [
        {"manager": "forebay", "fieldsV1": replicas},
        {"manager": "kubectl", "subresource": "scale", "fieldsV1": replicas},
        {"manager": "kube-controller-manager", "fieldsV1": {"f:status": {}}},
    ]
    store = Store()
    store.put(item("Deployment", "d", 1, managedFields=fields))
    store.put(item("ReplicaSet", "r", 1, managedFields=fields))
    found = store.find(DEPLOYMENT, "team", "d")
    kept = [{"manager": "kubectl", "fieldsV1": replicas}]
    assert found is not None and found["metadata"]["managedFields"] == kept
    other = store.find(REPLICA_SET, "team", "r")
    assert other is not None and "managedFields" not in other["metadata"]


def node(version: int, gpus: str, heartbeat: str = "", **spec: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}
    status = {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [ready], "images": [{}]}
    return {**item("Node", "n", version, namespace=""), "spec": spec, "status": status}


def device_slice(version: int, memory: str, other: str = "") -> dict[str, Any]:
    gpu = {"name": "gpu-0", "capacity": {"memory": {"value": memory}}, "taints": [other]}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": [gpu, {"name": "nic"}]}
    return {**item("ResourceSlice", "s", version, namespace=""), "spec": spec}


def test_what_a_node_says_of_its_gpus_concerns_every_service_but_its_heartbeat_none() -> None:
    store = Store()
    store.put(item("InferenceService", "llama", 1))
    assert store.put(node(2, "1")) == (KEY,)
    assert store.put(node(3, "1", heartbeat="later")) == ()
    assert store.put(node(4, "2")) == (KEY,)
    assert store.put(node(5, "2", unschedulable=True)) == (KEY,)
    assert store.put(node(6, "2", taints=[{"key": "a", "effect": "NoSchedule"}])) == (KEY,)
    gone = node(7, "2")
    gone["status"]["conditions"][0]["status"] = "Unknown"
    assert store.put(gone) == (KEY,)
    assert store.drop(node(8, "2")) == (KEY,)


def test_a_slice_concerns_every_service_where_it_tells_another_memory() -> None:
    store = Store()
    store.put(item("InferenceService", "llama", 1))
    assert store.put(device_slice(2, "80Gi")) == (KEY,)
    assert store.put(device_slice(3, "80Gi", other="tainted")) == ()
    assert store.put(device_slice(4, "40Gi")) == (KEY,)
    (kept,) = store.surroundings(RESOURCE_SLICE)
    assert [one["capacity"] for one in kept["spec"]["devices"]] == [{"memory": {"value": "40Gi"}}]


def test_a_node_is_kept_without_its_images() -> None:
    store = Store()
    store.put(node(1, "1"))
    assert "images" not in store.surroundings(NODE)[0]["status"]
    assert store.find(NODE, "", "n") is not None
    assert store.find(INFERENCE_SERVICE, "", "n") is None


@pytest.mark.parametrize(
    ("version", "uid", "is_shared"),
    [(2, "uid-p", True), (1, "uid-p", True), (3, "uid-p", False), (1, "uid-q", False)],
    ids=["the same", "an older one", "a newer one", "a namesake"],
)
def test_a_listed_object_that_is_known_costs_no_memory(
    version: int, uid: str, is_shared: bool
) -> None:
    store = Store()
    store.put(item("Pod", "p", 2))
    listed = item("Pod", "p", version, uid=uid, managedFields=[{"manager": "x"}])
    shortened = store.shorten(listed)
    assert (shortened is store.find(POD, "team", "p")) == is_shared
    assert "managedFields" not in shortened["metadata"]
