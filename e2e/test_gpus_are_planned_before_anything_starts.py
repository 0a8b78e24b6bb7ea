"""Story: a model of 21 GiB on GPUs of 16 GiB gets two, or a sentence that says what would fit."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import sparse_checkpoint
from claim import Claim, pick_node
from cluster_api import ClusterApi, Object
from namespace import Namespace
from served import ServedModel, build_service

GPU = "nvidia.com/gpu"
LABELS = {"nvidia.com/gpu.memory": "16384", "nvidia.com/gpu.count": "4"}
ENGINE = {"maxModelLen": 4096, "maxNumSeqs": 8}


@pytest.fixture(scope="module")
def gpu_node(api: ClusterApi) -> Iterator[str]:
    """A node that advertises four GPUs of 16 GiB which it does not have."""
    node = pick_node(api)
    advertise(api, node, "4", LABELS)
    yield node
    advertise(api, node, None, dict.fromkeys(LABELS))


@pytest.fixture(scope="module")
def checkpoint(module_namespace: Namespace) -> Iterator[str]:
    """The uri of a model of 13 billion parameters, all headers, on a claim."""
    claim = Claim(module_namespace)
    claim.create()
    claim.run_python(Path(sparse_checkpoint.__file__), "/claim/llama-13b")
    yield "pvc://models/llama-13b"
    claim.remove()


def test_the_least_gpus_that_fit_are_asked_for(
    module_namespace: Namespace, gpu_node: str, checkpoint: str
) -> None:
    module_namespace.apply(
        build_service("two-gpus", device="GPU", model={"uri": checkpoint}, engine=ENGINE)
    )
    served = ServedModel(module_namespace, "two-gpus")
    served.wait_condition("Fits", "True")
    deployment = module_namespace.wait_for("deployments", "two-gpus", bool, "exists")

    plan = served.read()["status"]["plan"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = read_flags(container)
    assert plan["tensorParallelSize"] == 2
    assert (plan["maxModelLen"], plan["maxNumSeqs"]) == (4096, 8)
    assert container["resources"]["limits"][GPU] == "2"
    assert flags["--tensor-parallel-size"] == "2"
    assert flags["--max-model-len"] == "4096"
    assert flags["--max-num-seqs"] == "8"
    assert flags["--gpu-memory-utilization"] == plan["gpuMemoryUtilization"]
    assert served.read()["status"]["model"]["weightsBytes"] == sparse_checkpoint.count_bytes()


def test_what_does_not_fit_starts_nothing_and_says_what_would(
    module_namespace: Namespace, gpu_node: str, checkpoint: str
) -> None:
    manifest = build_service("too-big", device="GPU", model={"uri": checkpoint}, engine=ENGINE)
    manifest["spec"]["vram"] = {"budget": "20Gi"}
    module_namespace.apply(manifest)
    served = ServedModel(module_namespace, "too-big")

    sentence = served.wait_condition("Fits", "False")["message"]

    needed, allowed, advice = read_advice(sentence)
    assert allowed == 20 < needed
    assert served.wait_condition("Ready", "False")["message"] == sentence
    assert served.pods() == []
    assert module_namespace.get("deployments", "too-big") is None
    served.patch({"spec": {"vram": {"budget": advice}, "replicas": 0}})
    served.wait_condition("Fits", "True")
    assert served.read()["status"]["plan"]["tensorParallelSize"] == 2


def read_advice(sentence: str) -> tuple[float, float, str]:
    """Return the GiB that are needed, the GiB that are allowed, and the budget that would do."""
    found = re.search(r"needs ([\d.]+) GiB.* allows ([\d.]+) GiB.* vram.budget (\w+)", sentence)
    assert found is not None, sentence
    return float(found[1]), float(found[2]), found[3]


def advertise(
    api: ClusterApi, node: str, num_gpus: str | None, labels: Mapping[str, str | None]
) -> None:
    """Make a node say that it has GPUs; None takes the word back."""
    path = f"/api/v1/nodes/{node}"
    api.merge(path, {"metadata": {"labels": labels}})
    resources = {"capacity": {GPU: num_gpus}, "allocatable": {GPU: num_gpus}}
    api.merge(f"{path}/status", {"status": resources})


def read_flags(container: Object) -> dict[str, str]:
    """Return a container's flags, written either way: `--flag value` or `--flag=value`."""
    words = [*container.get("command", []), *container.get("args", [])]
    split = [
        part for word in words for part in (word.split("=", 1) if word[:2] == "--" else [word])
    ]
    return {
        flag: value
        for flag, value in zip(split, split[1:] + [""], strict=True)
        if flag.startswith("--")
    }
