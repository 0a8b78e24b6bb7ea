"""Ownership goes by the controller's uid, never by a name or a label."""

from datetime import UTC, datetime
from typing import Any

import pytest

from forebay_operator.memory import Memory
from forebay_operator.observe import is_orphan, observe
from forebay_operator.observed import Key, Observed, ScalingMemory, Settings
from forebay_operator.store import Store

KEY = Key("team", "llama")
LABELS = {
    "Pod": {"forebay.dev/inference-service": "llama"},
    "ReplicaSet": {"forebay.dev/inference-service": "llama"},
}


GROUPS = {
    "InferenceService": "forebay.dev/v1alpha1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
}


def item(kind: str, name: str, uid: str, owner: tuple[str, str, str] = ("", "", "")) -> Any:
    metadata: dict[str, Any] = {"namespace": "team", "name": name, "uid": uid}
    metadata |= {"resourceVersion": "1", "labels": LABELS.get(kind, {})}
    if owner[0]:
        names = dict(zip(("kind", "name", "uid"), owner, strict=True))
        metadata["ownerReferences"] = [
            {**names, "apiVersion": GROUPS[owner[0]], "controller": True}
        ]
    return {"kind": kind, "metadata": metadata, "spec": {}}


SERVICE = ("InferenceService", "llama", "s")


def observed(*items: Any) -> Observed:
    store = Store()
    for one in (item("InferenceService", "llama", "s"), *items):
        store.put(one)
    memory = Memory("s", ScalingMemory(datetime(2026, 1, 1, tzinfo=UTC)))
    found = observe(store, KEY, Settings("r", "o"), memory, {})
    assert found is not None
    return found


def test_a_serving_pod_is_found_through_its_replica_set_and_deployment() -> None:
    found = observed(
        item("Deployment", "llama", "d", SERVICE),
        item("ReplicaSet", "llama-1", "r", ("Deployment", "llama", "d")),
        item("Pod", "llama-1-x", "p", ("ReplicaSet", "llama-1", "r")),
        item("Pod", "bare", "q"),
        item("Pod", "of-another", "o", ("ReplicaSet", "another", "z")),
    )
    assert [pod["metadata"]["name"] for pod in found.pods] == ["llama-1-x"]


@pytest.mark.parametrize(
    ("thing", "field"),
    [
        (item("Deployment", "llama", "d", ("InferenceService", "llama", "old")), "deployment"),
        (item("Service", "llama", "d", ("InferenceService", "llama", "old")), "network_service"),
        (item("Deployment", "llama", "d"), "deployment"),
        (item("Job", "llama-inspect-1", "j", ("InferenceService", "llama", "old")), "jobs"),
    ],
    ids=[
        "a Deployment of a deleted namesake",
        "a Service of a deleted namesake",
        "a Deployment of nobody",
        "a Job of a deleted namesake",
    ],
)
def test_what_belongs_to_another_is_not_ours(thing: Any, field: str) -> None:
    assert not getattr(observed(thing), field)


def test_each_child_has_its_place() -> None:
    found = observed(
        item("Deployment", "llama", "1", SERVICE),
        item("Service", "llama", "2", SERVICE),
        item("ControllerRevision", "llama-abc", "4", SERVICE),
        item("Job", "llama-inspect-1", "5", SERVICE),
    )
    assert found.deployment and found.network_service
    assert (len(found.revisions), len(found.jobs)) == (1, 1)


@pytest.mark.parametrize("label", ["forebay.dev/inference-service", "forebay.dev/inspection-of"])
def test_a_child_that_nobody_owns_was_left_behind(label: str) -> None:
    ours = {"app.kubernetes.io/managed-by": "forebay", label: "llama"}
    assert is_orphan({"metadata": {"labels": ours}}, KEY)
    assert not is_orphan({"metadata": {"labels": ours, "ownerReferences": [{"uid": "x"}]}}, KEY)
    assert not is_orphan({"metadata": {"labels": ours | {label: "other"}}}, KEY)
