"""What labels say of a node's GPUs: memory, product, and whether pods share them.

NVIDIA's GPU feature discovery, AMD's node labeller, Intel's device plugin, and the instance labels
of Karpenter and EKS. What labels do not tell stays zero or empty.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

MIB = 1024**2
MOST_MIB = 1024**3
"""1 PiB: whatever tells of larger GPUs is mistaken, and tells nothing."""
_AMD_KEYS = ("amd.com/gpu.vram", "beta.amd.com/gpu.vram")
_AMD_SIZE = re.compile(r"(\d+)G", re.ASCII)
"""Whole GiB, rounded to the nearest."""
_INSTANCES = ("karpenter.k8s.aws", "eks.amazonaws.com")
_KINDS = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "eks.amazonaws.com/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
    "node.kubernetes.io/instance-type",
)
"""Labels that name a kind of GPU, or a machine, without its memory."""

Labels = Mapping[str, str]
Form = Literal["MiB", "text", "key"]
"""How a label tells memory: as MiB of one whole GPU, as other text, or by its very key."""


@dataclass(frozen=True)
class GpuReading:
    """One node's GPUs, as one source describes them."""

    memory_mib: int
    """Of what a pod gets by asking for one; 0 where it is not known."""
    product: str = ""
    memory_key: str = ""
    """The label that says so; empty where it was no label."""
    memory_form: Form = "text"
    num_sharers: int = 1
    """How many pods share a GPU."""
    is_divisible: bool = True
    """False where a pod can use only one: shared GPUs and MIG devices do not work together."""
    product_key: str = ""


def read_labels(labels: Labels, resource: str, num_advertised: int) -> GpuReading:
    """What the labels say of the GPUs behind an extended resource.

    Of a node whose GPUs differ, the smallest counts: nobody chooses which a pod gets.
    """
    readings = (
        _read_feature_discovery(labels, resource),
        _read_amd(labels) if resource.startswith("amd.com/") else None,
        _read_intel(labels, num_advertised) if resource.startswith("gpu.intel.com/") else None,
        _read_instance(labels, resource),
    )
    sane = (one for one in readings if one is not None and one.memory_mib <= MOST_MIB)
    found = next(sane, GpuReading(0))
    if found.product:
        return found
    return replace(found, product=_product(labels, resource))


def describe_kind(labels: Labels) -> str:
    """The label by which a cloud names the kind of GPU or machine; empty where there is none."""
    return next((f"{key}={labels[key]}" for key in _KINDS if labels.get(key)), "")


def _read_feature_discovery(labels: Labels, resource: str) -> GpuReading | None:
    """`nvidia.com/gpu.memory` and, of MIG devices, `nvidia.com/mig-1g.10gb.memory`, in MiB."""
    name = resource.removesuffix(".shared")
    memory_mib, product = _number(labels.get(f"{name}.memory")), labels.get(f"{name}.product", "")
    if not memory_mib:
        return None
    num_sharers = max(1, _number(labels.get(f"{name}.replicas")))
    is_mig = name.startswith("nvidia.com/mig-") or "-MIG-" in product
    return GpuReading(
        memory_mib=memory_mib // num_sharers,
        product=product,
        memory_key=f"{name}.memory",
        memory_form="MiB",
        num_sharers=num_sharers,
        is_divisible=num_sharers == 1 and not is_mig,
        product_key=f"{name}.product",
    )


def _read_amd(labels: Labels) -> GpuReading | None:
    """`amd.com/gpu.vram=192G`; older: `beta.amd.com/gpu.vram.192G=8`, which counts GPUs."""
    found = min(_list_amd_sizes(labels), default=None)
    if found is None:
        return None
    size_gib, key = found
    name = "amd.com/gpu.product-name"
    form: Form = "text" if key in _AMD_KEYS else "key"
    return GpuReading(size_gib * 1024, labels.get(name, ""), key, form, product_key=name)


def _list_amd_sizes(labels: Labels) -> Iterator[tuple[int, str]]:
    for key in _AMD_KEYS:
        if match := _AMD_SIZE.fullmatch(labels.get(key, "")):
            yield int(match[1]), key
            return
    prefix = "beta.amd.com/gpu.vram."
    for key in labels:
        match = _AMD_SIZE.fullmatch(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if match:
            yield int(match[1]), key


def _read_intel(labels: Labels, num_advertised: int) -> GpuReading | None:
    """`gpu.intel.com/memory.max`: bytes of all GPUs of the node together, which are alike."""
    total_bytes = _number(labels.get("gpu.intel.com/memory.max"))
    counted = _number(labels.get("gpu.intel.com/device.count"))
    num_gpus = counted or _number(labels.get("gpu.intel.com/millicores")) // 1000 or num_advertised
    if not total_bytes or not num_gpus:
        return None
    num_sharers = max(1, num_advertised // num_gpus)
    return GpuReading(
        memory_mib=total_bytes // num_gpus // num_sharers // MIB,
        product=labels.get("gpu.intel.com/product", ""),
        memory_key="gpu.intel.com/memory.max",
        num_sharers=num_sharers,
        is_divisible=num_sharers == 1,
        product_key="gpu.intel.com/product",
    )


def _read_instance(labels: Labels, resource: str) -> GpuReading | None:
    """`karpenter.k8s.aws/instance-gpu-memory`: MiB of one GPU, for whole GPUs of that maker."""
    maker = resource.removesuffix(".com/gpu")
    for prefix in _INSTANCES:
        memory_mib = _number(labels.get(f"{prefix}/instance-gpu-memory"))
        if memory_mib and labels.get(f"{prefix}/instance-gpu-manufacturer", maker) == maker:
            key, name = f"{prefix}/instance-gpu-memory", f"{prefix}/instance-gpu-name"
            return GpuReading(memory_mib, labels.get(name, ""), key, "MiB", product_key=name)
    return None


def _product(labels: Labels, resource: str) -> str:
    keys = (f"{resource}.product", f"{resource}.product-name", f"beta.{resource}.product-name")
    return next((labels[key] for key in keys if labels.get(key)), "")


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0
