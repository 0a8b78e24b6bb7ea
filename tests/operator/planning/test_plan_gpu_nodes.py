"""What labels of every vendor, and ResourceSlices, tell of the GPUs that a service is sized for."""

from typing import Any

import pytest

from gpu_sizing import MIB_80, gpus, sized, told
from observed_builder import condition_of, gpu_node, labelled_node, says

GIB = 1024**3
NVIDIA, AMD, INTEL = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"
H100 = "NVIDIA-H100-80GB-HBM3"
MIG = "nvidia.com/mig-3g.40gb"


@pytest.mark.parametrize(
    ("resource", "count", "labels", "expected"),
    [
        (NVIDIA, 4, {"nvidia.com/gpu.memory": "16384"}, (2, "16Gi")),
        (
            NVIDIA,
            8,
            {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.product": H100},
            (1, "81559Mi"),
        ),
        (
            NVIDIA,
            8,
            {
                "nvidia.com/gpu.memory": "81920",
                "nvidia.com/gpu.replicas": "2",
                "nvidia.com/gpu.sharing-strategy": "time-slicing",
                "nvidia.com/gpu.product": f"{H100}-SHARED",
            },
            (1, "40Gi"),
        ),
        (
            "nvidia.com/gpu.shared",
            8,
            {"nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.replicas": "2"},
            (1, "40Gi"),
        ),
        (MIG, 2, {f"{MIG}.memory": "40448", "nvidia.com/gpu.memory": "81920"}, (1, "40448Mi")),
        (AMD, 8, {"amd.com/gpu.vram": "192G"}, (1, "192Gi")),
        (AMD, 8, {"beta.amd.com/gpu.vram": "64G"}, (1, "64Gi")),
        (AMD, 8, {"beta.amd.com/gpu.vram.16G": "8"}, (2, "16Gi")),
        (AMD, 8, {"beta.amd.com/gpu.vram.64G": "4", "beta.amd.com/gpu.vram.32G": "4"}, (1, "32Gi")),
        (INTEL, 4, {"gpu.intel.com/memory.max": str(4 * 48 * GIB)}, (1, "48Gi")),
        (
            INTEL,
            8,
            {"gpu.intel.com/memory.max": str(4 * 64 * GIB), "gpu.intel.com/millicores": "4000"},
            (1, "32Gi"),
        ),
        (
            "gpu.intel.com/xe",
            2,
            {"gpu.intel.com/memory.max": str(2 * 48 * GIB), "gpu.intel.com/device.count": "2"},
            (1, "48Gi"),
        ),
        (NVIDIA, 1, {"karpenter.k8s.aws/instance-gpu-memory": "45776"}, (1, "45776Mi")),
        (NVIDIA, 1, {"eks.amazonaws.com/instance-gpu-memory": "45776"}, (1, "45776Mi")),
    ],
    ids=[
        "NVIDIA: two GPUs",
        "NVIDIA: one GPU, of a size that is not round",
        "NVIDIA: shared by two pods",
        "NVIDIA: shared under a name of its own",
        "NVIDIA: MIG devices",
        "AMD: whole GiB",
        "AMD: an older labeller",
        "AMD: by a label that counts",
        "AMD: different GPUs in one node",
        "Intel: the sum of a node's GPUs",
        "Intel: shared by two pods",
        "Intel: counted by its own label",
        "Karpenter",
        "EKS",
    ],
)
def test_labels_tell_a_gpus_memory(
    resource: str, count: int, labels: dict[str, str], expected: tuple[int, str]
) -> None:
    node = labelled_node("a", {resource: count}, labels)
    assert gpus(sized(node, vram={"gpuResource": resource})) == expected


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.memory": "16384", "nvidia.com/gpu.replicas": "1"},
        {"nvidia.com/gpu.memory": "32768", "nvidia.com/gpu.replicas": "2"},
        {"nvidia.com/gpu.memory": "16384", "nvidia.com/gpu.product": "NVIDIA-A100-MIG-2g.16gb"},
    ],
    ids=["whole GPUs do", "shared GPUs do not", "MIG devices do not"],
)
def test_only_whole_gpus_work_together(labels: dict[str, str]) -> None:
    decided = sized(labelled_node("a", {NVIDIA: 4}, labels))
    is_whole = labels.get("nvidia.com/gpu.replicas") == "1"
    assert says(decided, "Fits")[0] == ("True" if is_whole else "False")


@pytest.mark.parametrize(
    ("resource", "labels", "words"),
    [
        (
            NVIDIA,
            {"cloud.google.com/gke-accelerator": "nvidia-l4"},
            "(cloud.google.com/gke-accelerator=nvidia-l4)",
        ),
        (
            NVIDIA,
            {"kubernetes.azure.com/accelerator": "nvidia"},
            "(kubernetes.azure.com/accelerator=nvidia)",
        ),
        (NVIDIA, {"node.kubernetes.io/instance-type": "p5.48xlarge"}, "instance-type=p5.48xlarge)"),
        (NVIDIA, {"nvidia.com/gpu.memory": "lots"}, "a label such as nvidia.com/gpu.memory nor"),
        (NVIDIA, {"nvidia.com/gpu.memory": "9" * 20}, "a label such as nvidia.com/gpu.memory nor"),
        (
            AMD,
            {"amd.com/gpu.vram": "192Go"},
            "a label such as amd.com/gpu.vram nor a ResourceSlice",
        ),
        (INTEL, {}, "a label such as gpu.intel.com/memory.max nor a ResourceSlice"),
    ],
    ids=["GKE", "AKS", "a machine's kind", "no number", "too much", "AMD: no size", "Intel"],
)
def test_where_labels_tell_no_memory_the_sentence_says_what_they_tell(
    resource: str, labels: dict[str, str], words: str
) -> None:
    decided = sized(labelled_node("a", {resource: 1}, labels), vram={"gpuResource": resource})
    assert says(decided, "Fits") == ("False", "GPUMemoryUnknown")
    message = condition_of(decided, "Fits")["message"]
    assert words in message and "set spec.vram.gpuMemory" in message


def resource_slice(node: str, driver: str, *devices: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {"driver": driver, "nodeName": node, "devices": list(devices)},
    }


def device(memory: str, **attributes: str) -> dict[str, Any]:
    named = {name: {"string": text} for name, text in attributes.items()}
    return {"attributes": named, "capacity": {"memory": {"value": memory}}}


@pytest.mark.parametrize(
    ("resource", "driver", "devices", "expected"),
    [
        (
            NVIDIA,
            "gpu.nvidia.com",
            [device("81559Mi", type="gpu", productName="NVIDIA H100")],
            "81559Mi",
        ),
        (
            NVIDIA,
            "gpu.nvidia.com",
            [device("80Gi", type="gpu"), device("10Gi", type="mig")],
            "80Gi",
        ),
        (AMD, "gpu.amd.com", [device("192Gi"), device("64Gi")], "64Gi"),
        (INTEL, "gpu.intel.com", [device("48Gi", model="Max 1100")], "48Gi"),
        (NVIDIA, "gpu.nvidia.com", [device("40Gi"), device("-1"), device("9E")], "40Gi"),
        (
            NVIDIA,
            "gpu.nvidia.com",
            [{"capacity": {"gpu.nvidia.com/memory": {"value": "40Gi"}}}],
            "40Gi",
        ),
    ],
    ids=[
        "NVIDIA",
        "parts of a GPU do not count",
        "the smallest of different ones counts",
        "Intel",
        "what no GPU has does not count",
        "a name with its domain",
    ],
)
def test_resource_slices_tell_what_labels_do_not(
    resource: str, driver: str, devices: list[dict[str, Any]], expected: str
) -> None:
    node = labelled_node("a", {resource: 1}, {})
    others = resource_slice("b", driver, device("1Gi"))
    slices = (others, resource_slice("a", driver, *devices))
    plan_ = told(sized(node, slices=slices, vram={"gpuResource": resource}))
    assert plan_["gpuMemory"] == expected
    products = [one["string"] for one in devices[0].get("attributes", {}).values()]
    assert plan_.get("gpuProducts", []) == [name for name in products if " " in name]


class Looked(dict[str, Any]):
    """An object of the API that counts how often somebody looks into it or compares it."""

    num_looks = 0

    def __getitem__(self, name: str) -> Any:
        Looked.num_looks += 1
        return super().__getitem__(name)

    def __eq__(self, other: object) -> bool:
        Looked.num_looks += 1
        return super().__eq__(other)


def num_looks(num_nodes: int) -> int:
    """How often nodes and slices are looked into where every second node has neither label."""
    Looked.num_looks = 0
    numbers = range(num_nodes)
    nodes = [
        Looked(gpu_node(f"n{one}", MIB_80, 1) if one % 2 else gpu_node(f"n{one}", 0, 1))
        for one in numbers
    ]
    slices = [
        Looked(resource_slice(f"n{one}", "gpu.nvidia.com", device("40Gi"))) for one in numbers
    ]
    assert gpus(sized(*nodes, slices=tuple(slices))) == (1, "40Gi")
    return Looked.num_looks


def test_twice_as_many_nodes_are_no_more_than_twice_the_work() -> None:
    assert num_looks(80) < 2.2 * num_looks(40)


def test_labels_are_believed_before_slices() -> None:
    slices = (resource_slice("a", "gpu.nvidia.com", device("10Gi")),)
    assert gpus(sized(gpu_node("a", MIB_80, 1), slices=slices)) == (1, "80Gi")


def test_gpus_that_only_claims_can_have_are_told() -> None:
    slices = (resource_slice("a", "gpu.nvidia.com", device("80Gi")),)
    decided = sized(labelled_node("a", {}, {}), slices=slices)
    assert says(decided, "Fits") == ("False", "NoGPUNode")
    assert "DRA driver gpu.nvidia.com" in condition_of(decided, "Fits")["message"]
