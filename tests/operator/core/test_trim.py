"""What is left of an object is what decisions read."""

import json
from typing import Any

import pytest

from forebay_operator.trim import trim

METADATA = {"name": "x", "labels": {"a": "b"}}
RESOURCES = {"limits": {"memory": "1Gi"}}
PORTS = [{"name": "http", "containerPort": 8000}]


@pytest.mark.parametrize(
    ("kind", "spec", "left"),
    [
        (
            "Pod",
            {
                "nodeName": "n",
                "tolerations": [],
                "volumes": [{"name": "model"}],
                "containers": [
                    {"name": "c", "ports": PORTS, "resources": RESOURCES, "env": [], "args": []}
                ],
                "initContainers": [{"name": "i", "command": ["true"]}],
            },
            {
                "nodeName": "n",
                "tolerations": [],
                "containers": [{"name": "c", "ports": PORTS, "resources": RESOURCES}],
                "initContainers": [{"name": "i"}],
            },
        ),
        ("ReplicaSet", {"replicas": 1, "template": {}, "selector": {}}, {"replicas": 1}),
        ("Deployment", {"replicas": 1, "template": {}}, {"replicas": 1, "template": {}}),
    ],
    ids=["a pod", "a replica set", "what is compared with a wish"],
)
def test_what_nobody_reads_is_left_out(
    kind: str, spec: dict[str, Any], left: dict[str, Any]
) -> None:
    item = {"kind": kind, "metadata": {**METADATA, "managedFields": [{}]}, "spec": spec}
    assert trim(item) == {"kind": kind, "metadata": METADATA, "spec": left}


def test_what_is_trimmed_already_stays_as_it_is() -> None:
    replicas = {"f:spec": {"f:replicas": {}}}
    fields = [{"manager": "kubectl", "fieldsV1": {**replicas, "f:metadata": {}}}]
    item = {"kind": "Deployment", "metadata": {**METADATA, "managedFields": fields}, "spec": {}}
    once = trim(item)
    assert once["metadata"]["managedFields"] == [{"manager": "kubectl", "fieldsV1": replicas}]
    assert trim(once) == once


@pytest.mark.parametrize(
    ("phase", "ready", "kept"),
    [("Running", "False", "12:00:09"), ("Running", "True", ""), ("Pending", "False", "")],
    ids=["that starts", "that serves", "that waits"],
)
def test_of_a_pod_when_its_status_was_written_last_is_kept(
    phase: str, ready: str, kept: str
) -> None:
    fields = [
        {"manager": "kube-scheduler", "subresource": "status", "time": "2026-01-01T12:00:01Z"},
        {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T12:00:09Z"},
        {"manager": "forebay", "time": "2026-01-01T12:00:30Z"},
    ]
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
    metadata = {**METADATA, "managedFields": fields}
    once = trim({"kind": "Pod", "metadata": metadata, "spec": {}, "status": status})
    left = [{"subresource": "status", "time": f"2026-01-01T{kept}Z"}] if kept else None
    assert once["metadata"].get("managedFields") == left
    assert trim(once) == once


def test_what_objects_say_alike_is_in_memory_once() -> None:
    def parse() -> Any:
        text = {"kind": "Pod", "metadata": METADATA, "status": {"phase": "Run" + "ning" * 9}}
        return trim(json.loads(json.dumps(text)))

    one, other = parse(), parse()
    assert one["status"]["phase"] is other["status"]["phase"]
    assert next(iter(one["status"])) is next(iter(other["status"]))
