"""Which GPUs the nodes offer, by the labels of GPU feature discovery and the devices' resources."""

from collections.abc import Iterable
from dataclasses import dataclass

from forebay_operator.observed import Object
from forebay_operator.service import Service

MEMORY_LABEL = "nvidia.com/gpu.memory"
"""MiB of one GPU."""
COUNT_LABEL = "nvidia.com/gpu.count"
MOST_GPUS = 8
"""The widest tensor parallelism."""


@dataclass(frozen=True, order=True)
class GpuNode:
    """What one node offers."""

    memory_mib: int
    """Of one GPU; 0 where no label tells."""
    num_gpus: int


def read_gpu_nodes(nodes: Iterable[Object], service: Service) -> tuple[GpuNode, ...]:
    """The GPU nodes that the service's pods may run on, least memory first."""
    found = (
        _read_node(node, service.vram.gpu_resource) for node in nodes if _admits(node, service)
    )
    return tuple(sorted(node for node in found if node.num_gpus > 0))


def _admits(node: Object, service: Service) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(
        labels.get(key) == value for key, value in service.pod_template.node_selector.items()
    )


def _read_node(node: Object, gpu_resource: str) -> GpuNode:
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    advertised = allocatable.get(gpu_resource, labels.get(COUNT_LABEL))
    return GpuNode(memory_mib=_number(labels.get(MEMORY_LABEL)), num_gpus=_number(advertised))


def _number(text: object) -> int:
    digits = str(text)
    return int(digits) if digits.isdecimal() else 0
