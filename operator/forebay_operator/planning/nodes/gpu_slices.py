"""What DRA drivers publish of a node's GPUs: memory and product, for nodes without such labels.

Pods ask for GPUs by an extended resource, never by a claim, so ResourceSlices describe GPUs here
and offer none.
"""

from collections.abc import Iterable

from forebay_budget.quantity import parse_quantity
from forebay_operator.observed import Object
from forebay_operator.planning.nodes.gpu_labels import MIB, MOST_MIB, GpuReading

_PRODUCT_ATTRIBUTES = ("productName", "model")
_PARTIAL_TYPES = frozenset({"mig", "vfio"})
"""Devices that are parts or faces of GPUs which are listed as well."""


def read_slices(slices: Iterable[Object], resource: str) -> dict[str, GpuReading]:
    """By node: the smallest whole GPU that a driver of the resource's vendor publishes for it."""
    found: dict[str, tuple[int, str]] = {}
    for spec in (one["spec"] for one in slices if _is_of(one["spec"], resource)):
        name = spec.get("nodeName", "")
        for device in spec.get("devices") or ():
            one = _memory_mib(device), _attribute(device, *_PRODUCT_ATTRIBUTES)
            if one[0] > 0:
                found[name] = min(one, found.get(name, one))
    return {name: GpuReading(*smallest) for name, smallest in found.items()}


def _is_of(spec: Object, resource: str) -> bool:
    """A driver is named in its vendor's domain: gpu.nvidia.com for nvidia.com/gpu."""
    domain = resource.partition("/")[0]
    return f".{spec.get('driver', '')}".endswith(f".{domain}") and "/mig-" not in resource


def _memory_mib(device: Object) -> int:
    if _attribute(device, "type") in _PARTIAL_TYPES:
        return 0
    for name, capacity in (device.get("capacity") or {}).items():
        if name.rpartition("/")[2] == "memory":
            return _to_mib(str(capacity.get("value", "0")))
    return 0


def _to_mib(quantity: str) -> int:
    """A driver may publish whatever is a quantity: 0 where it cannot be a GPU's memory."""
    try:
        memory_mib = parse_quantity(quantity) // MIB
    except ValueError:
        return 0
    return memory_mib if memory_mib <= MOST_MIB else 0


def _attribute(device: Object, *names: str) -> str:
    """A text attribute; drivers may write their own domain before its name."""
    attributes = {
        name.rpartition("/")[2]: value for name, value in (device.get("attributes") or {}).items()
    }
    return next((str(attributes[one].get("string", "")) for one in names if one in attributes), "")
