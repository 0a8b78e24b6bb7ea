"""What DRA drivers publish of a node's GPUs: memory and product, for nodes without such labels.

Pods ask for GPUs by an extended resource, never by a claim, so ResourceSlices describe GPUs here
and offer none.
"""

from collections.abc import Iterable

from forebay_budget.quantity import parse_quantity
from forebay_operator.observed import Object
from forebay_operator.planning.gpu_labels import MIB, GpuReading

_PRODUCT_ATTRIBUTES = ("productName", "model")
_PARTIAL_TYPES = frozenset({"mig", "vfio"})
"""Devices that are parts or faces of GPUs which are listed as well."""


def read_slices(slices: Iterable[Object], node_name: str, resource: str) -> GpuReading:
    """The smallest whole GPU that a driver of the resource's vendor publishes for a node."""
    mine = [one for one in slices if _is_of(one["spec"], node_name, resource)]
    devices = [device for one in mine for device in one["spec"].get("devices") or ()]
    found = [(_memory_mib(device), _attribute(device, *_PRODUCT_ATTRIBUTES)) for device in devices]
    whole = [one for one in found if one[0] > 0]
    return GpuReading(*min(whole)) if whole else GpuReading(0)


def _is_of(spec: Object, node_name: str, resource: str) -> bool:
    """A driver is named in its vendor's domain: gpu.nvidia.com for nvidia.com/gpu."""
    domain = resource.partition("/")[0]
    is_vendors = f".{spec.get('driver', '')}".endswith(f".{domain}")
    return spec.get("nodeName") == node_name and is_vendors and "/mig-" not in resource


def _memory_mib(device: Object) -> int:
    if _attribute(device, "type") in _PARTIAL_TYPES:
        return 0
    for name, capacity in (device.get("capacity") or {}).items():
        if name.rpartition("/")[2] == "memory":
            return parse_quantity(str(capacity.get("value", "0"))) // MIB
    return 0


def _attribute(device: Object, *names: str) -> str:
    """A text attribute; drivers may write their own domain before its name."""
    attributes = {
        name.rpartition("/")[2]: value for name, value in (device.get("attributes") or {}).items()
    }
    return next((str(attributes[one].get("string", "")) for one in names if one in attributes), "")
