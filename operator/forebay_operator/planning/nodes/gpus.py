"""Which nodes offer GPUs to a service's pods, and of what size and kind.

Labels say it, ResourceSlices where labels do not. Nodes that pods may not run on are kept apart,
with what keeps them off.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forebay_operator.observed import Object
from forebay_operator.planning.nodes.gpu_labels import GpuReading, read_labels
from forebay_operator.planning.nodes.gpu_slices import read_slices
from forebay_operator.planning.nodes.placement import explain_exclusion
from forebay_operator.planning.nodes.selector import labels_of
from forebay_operator.service import Service

MOST_GPUS = 8
"""The widest tensor parallelism."""


@dataclass(frozen=True)
class GpuNode:
    """What one node offers to one pod."""

    node: Object
    reading: GpuReading
    num_advertised: int
    exclusion: str
    """What keeps the service's pods off; empty where nothing does."""

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def memory_mib(self) -> int:
        return self.reading.memory_mib

    @property
    def num_gpus(self) -> int:
        """How many GPUs one pod can use together."""
        return self.num_advertised if self.reading.is_divisible else 1


def read_gpu_nodes(
    nodes: Iterable[Object], slices: Iterable[Object], service: Service
) -> tuple[GpuNode, ...]:
    """The nodes that advertise the service's GPU resource, by name."""
    resource = service.vram.gpu_resource
    published = read_slices(slices, resource)
    found = []
    for node in sorted(nodes, key=lambda one: str(one["metadata"]["name"])):
        num_advertised = count_advertised(node, resource)
        if num_advertised > 0:
            reading = _read(node, published, resource, num_advertised)
            exclusion = explain_exclusion(node, service)
            found.append(GpuNode(node, reading, num_advertised, exclusion))
    return tuple(found)


def count_advertised(node: Object, resource: str) -> int:
    """How many of a resource pods may ask of a node, taken ones included."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    text = str(allocatable.get(resource, "0"))
    return int(text) if text.isdecimal() else 0


def _read(
    node: Object, published: Mapping[str, GpuReading], resource: str, num_advertised: int
) -> GpuReading:
    reading = read_labels(labels_of(node), resource, num_advertised)
    if reading.memory_mib:
        return reading
    return published.get(str(node["metadata"]["name"]), reading)
