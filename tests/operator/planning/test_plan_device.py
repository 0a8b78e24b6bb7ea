"""A service that asked for GPUs is Ready on GPUs only."""

from collections.abc import Iterable

import pytest

from forebay_operator.observed import PodLoad
from forebay_operator.planned import Plan
from observed_builder import condition_of, says, service
from toy_cluster import ToyCluster

GPU = {"device": "GPU", "vram": {"gpuMemory": "80Gi"}}


def served(devices: Iterable[str | None], **spec: object) -> tuple[ToyCluster, Plan]:
    """A settled service whose pods said these devices; None is silence."""
    said = list(devices)
    cluster = ToyCluster(service(**{**GPU, "replicas": len(said), **spec}))
    cluster.settle()
    hear(cluster, said)
    return cluster, cluster.settle()


def hear(cluster: ToyCluster, devices: Iterable[str | None]) -> None:
    cluster.loads = {
        pod["metadata"]["uid"]: PodLoad(device is not None, device=device or "")
        for pod, device in zip(cluster.pods, devices, strict=True)
    }


@pytest.mark.parametrize(
    ("devices", "spec", "expected"),
    [
        (["cuda", "cuda"], {}, ("True", "AllReplicasReady")),
        (["cuda", "cpu"], {}, ("False", "RunsOnCPU")),
        (["", ""], {}, ("True", "AllReplicasReady")),
        ([None, None], {}, ("True", "AllReplicasReady")),
        (["cpu", "cpu"], {"device": "CPU"}, ("True", "AllReplicasReady")),
    ],
    ids=[
        "all on GPUs",
        "one on a CPU",
        "an older runtime that does not say",
        "pods that do not answer",
        "a service that asked for CPUs",
    ],
)
def test_a_gpu_service_is_ready_where_no_pod_runs_on_a_cpu(
    devices: list[str | None], spec: dict[str, object], expected: tuple[str, str]
) -> None:
    _, decided = served(devices, **spec)
    assert says(decided, "Ready") == expected
    assert says(decided, "Available") == ("True", "ReplicasReady")


def test_it_is_stalled_and_told_where_and_which_knobs_there_are() -> None:
    cluster, decided = served(["cpu"])
    assert says(decided, "Stalled") == ("True", "RunsOnCPU")
    sentence = condition_of(decided, "Ready")["message"]
    pod = cluster.pods[0]["metadata"]["name"]
    for words in (pod, "nvidia.com/gpu", "spec.podTemplate.runtimeClassName", "runtimeVersion"):
        assert words in sentence


def test_what_was_heard_stands_while_nothing_is_heard() -> None:
    cluster, decided = served(["cpu"])
    said = condition_of(decided, "Ready")
    for silence in ({}, {cluster.pods[0]["metadata"]["uid"]: PodLoad(answered=False)}):
        cluster.loads = dict(silence)
        assert condition_of(cluster.settle(), "Ready") == said


def test_a_mended_pod_is_ready_as_soon_as_it_says_so() -> None:
    cluster, _ = served(["cpu"])
    hear(cluster, ["cuda"])
    assert says(cluster.settle(), "Ready") == ("True", "AllReplicasReady")
