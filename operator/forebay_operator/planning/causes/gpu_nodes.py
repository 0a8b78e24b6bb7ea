"""Words for nodes and their GPUs: which will do, which will not, and why none is left."""

import re
from collections import Counter
from collections.abc import Iterable

from forebay_budget.quantity import format_bytes
from forebay_operator.observed import Object
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.nodes.gpu_labels import MIB, describe_kind
from forebay_operator.planning.nodes.gpus import GpuNode, count_advertised
from forebay_operator.planning.nodes.selector import labels_of
from forebay_operator.planning.situation import Situation

_GPU_RESOURCE = re.compile(
    r"nvidia\.com/(gpu|mig-)\S*|amd\.com/gpu|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi"
)
_MOST_KINDS = 4


def describe_nodes(nodes: Iterable[GpuNode]) -> str:
    """`2 nodes with 8 NVIDIA-H100-80GB-HBM3 of 79.6 GiB and 1 node with …`."""
    kinds = Counter(_describe_gpus(node) for node in nodes)
    return _join(f"{_count_nodes(count)} with {kind}" for kind, count in kinds.items())


def describe_excluded(nodes: Iterable[GpuNode]) -> str:
    """`1 is cordoned and 2 are not ready`; empty where none is excluded."""
    reasons = Counter(node.exclusion for node in nodes if node.exclusion)
    return _join(f"{count} {_is_or_are(count)} {reason}" for reason, count in reasons.items())


def explain_no_gpus(situation: Situation, found: tuple[GpuNode, ...]) -> Cause:
    """Why there is nothing to size for; found are the nodes that advertise the resource."""
    if not situation.observed.nodes_readable:
        seen = "The operator may not read nodes, so the memory of a GPU is unknown"
        return _unknown_memory(seen)
    if not found:
        return _no_node(situation)
    usable = [node for node in found if not node.exclusion]
    if usable:
        return _no_memory(situation, usable)
    resource = situation.service.vram.gpu_resource
    return _missing(
        f"{_count_nodes(len(found))} {_offers(len(found))} {resource}, but this service's pods may "
        f"not run there: {describe_excluded(found)}; change that, or"
    )


def _no_memory(situation: Situation, nodes: list[GpuNode]) -> Cause:
    resource = situation.service.vram.gpu_resource
    kinds = sorted({kind for node in nodes if (kind := describe_kind(labels_of(node.node)))})
    named = f" ({', '.join(kinds[:_MOST_KINDS])})" if kinds else ""
    return _unknown_memory(
        f"{_count_nodes(len(nodes))} {_offers(len(nodes))} {resource}{named}, but neither a label "
        f"such as {_memory_label(resource)} nor a ResourceSlice tells the memory of one GPU"
    )


def _no_node(situation: Situation) -> Cause:
    resource, observed = situation.service.vram.gpu_resource, situation.observed
    others = sorted({name for node in observed.nodes for name in _list_resources(node)})
    drivers = sorted({str(one["spec"]["driver"]) for one in observed.resource_slices})
    seen = f"No node offers {resource}"
    if others:
        seen += f", but nodes offer {', '.join(others)}: set spec.vram.gpuResource, or else"
    elif drivers:
        seen += (
            f"; devices of the DRA driver {', '.join(drivers)} are there, but pods ask for GPUs "
            "by a resource of nodes: run its device plugin too, or else"
        )
    else:
        seen += ";"
    return _missing(seen)


def _unknown_memory(seen: str) -> Cause:
    return Cause(
        "GPUMemoryUnknown",
        f"{seen}; set spec.vram.gpuMemory to the memory of one GPU, for example 80Gi, or "
        "spec.device to CPU.",
    )


def _missing(seen: str) -> Cause:
    return Cause(
        "NoGPUNode",
        f"{seen} set spec.vram.gpuMemory to the memory of one GPU, for example 80Gi, where such "
        "nodes come later, or spec.device to CPU.",
    )


def _describe_gpus(node: GpuNode) -> str:
    product = node.reading.product or ("GPU" if node.num_gpus == 1 else "GPUs")
    size = format_bytes(node.memory_mib * MIB) if node.memory_mib else "unknown memory"
    shares = node.reading.num_sharers
    shared = f" for each of {shares} that share it" if shares > 1 else ""
    return f"{node.num_gpus} {product} of {size}{shared}"


def _list_resources(node: Object) -> list[str]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return [
        name
        for name in allocatable
        if _GPU_RESOURCE.fullmatch(name) and count_advertised(node, name)
    ]


def _memory_label(resource: str) -> str:
    domain = resource.partition("/")[0]
    known = {"amd.com": "amd.com/gpu.vram", "gpu.intel.com": "gpu.intel.com/memory.max"}
    return known.get(domain, f"{resource}.memory")


def _count_nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _offers(count: int) -> str:
    return "offers" if count == 1 else "offer"


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _join(parts: Iterable[str]) -> str:
    listed = list(parts)
    if len(listed) > _MOST_KINDS:
        listed = [*listed[:_MOST_KINDS], f"{len(listed) - _MOST_KINDS} more kinds"]
    return (
        " and ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)
    )
