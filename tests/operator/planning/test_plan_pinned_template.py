"""What pods are made of stays pinned: only an edit restarts them, and one that is taken back finds
them again."""

import copy
from typing import Any

import pytest

from forebay_operator.planning.rollout.revision import rendered_fields
from forebay_operator.service_parser import parse_service
from observed_builder import child, gpu_node, says, service
from toy_cluster import HASH, ToyCluster, settled, with_settings


def of_older_operator(**spec: Any) -> ToyCluster:
    """A settled service whose template an older operator rendered, which knew less."""
    cluster = settled(**spec)
    (place,) = (one for one in cluster.children if one[0] == "ControllerRevision")
    revision = copy.deepcopy(cluster.children.pop(place))
    revision["metadata"]["name"] = "smollm2-older"
    data = revision["data"]
    container = data["template"]["spec"]["containers"][0]
    container["args"] = ["serve", "/model", "--an-old-flag"]
    del container["livenessProbe"]
    data["template"]["metadata"]["labels"][HASH] = "0lder"
    data["plan"] = {name: data["plan"][name] for name in ("maxNumSeqs", "budget", "explanation")}
    cluster.children["ControllerRevision", "smollm2-older"] = revision
    deployment = cluster.children["Deployment", "smollm2"]
    deployment["spec"] = deployment["spec"] | {"template": data["template"]}
    for one in cluster.pods:
        one["metadata"]["labels"] = data["template"]["metadata"]["labels"]
        one["spec"] = data["template"]["spec"]
    cluster.carry_out(cluster.decide())
    cluster.step()
    return cluster


def names(cluster: ToyCluster) -> set[str]:
    return {one["metadata"]["name"] for one in cluster.pods}


def upgrade(cluster: ToyCluster) -> None:
    images = {"runtime_image": "reg.test/runtime:v9", "operator_image": "reg.test/operator:v9"}
    with_settings(cluster, **images)


def scale_up(cluster: ToyCluster) -> None:
    """As an HPA does, by the scale subresource."""
    upgrade(cluster)
    cluster.change(replicas=3)


def grow_a_node(cluster: ToyCluster) -> None:
    cluster.nodes = (gpu_node("bigger", 180_000, 8),)


@pytest.mark.parametrize("event", [upgrade, scale_up, grow_a_node])
@pytest.mark.parametrize("make", [settled, of_older_operator])
def test_no_pod_is_restarted_by(make: Any, event: Any) -> None:
    cluster = make(replicas=2)
    before, digest = names(cluster), cluster.hashes()
    event(cluster)
    decided = cluster.settle()
    assert says(decided, "Ready") == ("True", "AllReplicasReady")
    assert before <= names(cluster)
    assert cluster.hashes() == digest


@pytest.mark.parametrize(
    "edit",
    [
        {"engine": {"maxNumSeqs": 3}},
        {"runtimeVersion": "v9"},
        {"device": "CPU", "vram": {"budget": "3Gi"}},
    ],
    ids=["an engine's field", "the runtime's version", "the budget"],
)
def test_pods_are_restarted_by(edit: dict[str, Any]) -> None:
    cluster = of_older_operator()
    before = names(cluster)
    cluster.change(**edit)
    assert says(cluster.settle(), "Ready")[0] == "True"
    assert not before & names(cluster)
    assert "0lder" not in cluster.hashes()


@pytest.mark.parametrize(
    "edit",
    [
        {"engine": {"maxNumSeqs": 3}},
        {"runtimeVersion": "v9"},
        {"model": {"uri": "oci://reg.test/other:1"}},
    ],
    ids=["an engine's field", "the runtime's version", "another model"],
)
@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_an_edit_that_is_taken_back_mid_way_finds_the_pods_that_still_serve(
    edit: dict[str, Any], num_steps: int
) -> None:
    cluster = of_older_operator(replicas=3)
    before, spec = names(cluster), cluster.service["spec"]
    cluster.change(**edit)
    for _ in range(num_steps):
        cluster.carry_out(cluster.decide())
        cluster.step()
    kept = before & names(cluster)
    cluster.change(**{name: spec.get(name) for name in edit})
    upgrade(cluster)
    assert says(cluster.settle(), "Ready")[0] == "True"
    assert kept and kept <= names(cluster)
    assert cluster.hashes() == {"0lder"}


def test_while_a_reverted_model_is_read_again_its_pods_are_back_already() -> None:
    cluster = settled(replicas=2)
    (digest,) = cluster.hashes()
    cluster.change(model={"uri": "oci://reg.test/other:1"})
    for _ in range(3):
        cluster.carry_out(cluster.decide())
        cluster.step()
    assert len(cluster.hashes()) == 2
    cluster.change(model={"uri": "oci://reg.test/smollm2:q4"})
    deployment = child(cluster.decide(), "Deployment")
    assert deployment is not None
    assert deployment["spec"]["template"]["metadata"]["labels"][HASH] == digest


WRITTEN = {
    "model": {"uri": "hf://org/name@main", "name": "m", "secretName": "s", "quantization": "INT8"},
    "device": "GPU",
    "vram": {"budget": "48Gi", "gpuMemory": "80Gi", "gpuResource": "amd.com/gpu"},
    "engine": {
        "maxModelLen": 8192,
        "maxNumSeqs": 64,
        "dtype": "bfloat16",
        "kvCacheDtype": "fp8",
        "tensorParallelSize": 2,
        "gpuMemoryUtilization": "0.90",
        "extraArgs": ["--stream-interval", "8"],
    },
    "replicas": 2,
    "startup": {"timeoutSeconds": 900},
    "drain": {"timeoutSeconds": 60, "lameDuckSeconds": 3},
    "rollout": {"strategy": "Replace"},
    "runtimeVersion": "v2",
    "podTemplate": {
        "labels": {"a": "b"},
        "nodeSelector": {"pool": "x"},
        "env": [{"name": "A", "value": "B"}],
        "imagePullSecrets": [{"name": "pull"}],
        "resources": {"limits": {"memory": "8Gi"}, "requests": {"cpu": 2}},
    },
}

STORED = {
    "model": {
        "uri": "hf://org/name@main",
        "scheme": "hf",
        "location": "org/name@main",
        "name": "m",
        "secret_name": "s",
        "quantization": "INT8",
    },
    "vram": {
        "budget_bytes": 48 * 1024**3,
        "gpu_memory_bytes": 80 * 1024**3,
        "gpu_resource": "amd.com/gpu",
    },
    "engine": {
        "max_model_len": 8192,
        "max_num_seqs": 64,
        "dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": "0.90",
        "extra_args": ["--stream-interval", "8"],
    },
    "startup_timeout_seconds": 900,
    "drain": {"timeout_seconds": 60, "lame_duck_seconds": 3},
    "runtime_version": "v2",
    "pod_template": {
        "labels": {"a": "b"},
        "node_selector": {"pool": "x"},
        "env": [{"name": "A", "value": "B"}],
        "image_pull_secrets": [{"name": "pull"}],
        "limits": {"memory": "8Gi"},
        "requests": {"cpu": "2"},
    },
}
"""As the first operator wrote it: another name or another form of a field restarts every pod."""


def test_a_stored_spec_is_still_read_as_the_same() -> None:
    assert rendered_fields(parse_service(service(**WRITTEN))) == STORED
