"""What the store keeps of an object: all that decisions read, without the rest, which is the most.

Thousands of pods fit into a small process only so. Who reads a field that is left out here adds it.
"""

from collections.abc import Set
from sys import intern
from typing import Any

from forebay_operator.kinds import DEPLOYMENT, FIELD_MANAGER, NODE, POD, REPLICA_SET, RESOURCE_SLICE
from forebay_operator.observed import Object

LONGEST_SHARED = 100
"""Characters; what is longer is seldom said twice."""

_OF_CONTAINERS = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "securityContext",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeMounts",
    }
)
_OF_POD_SPECS = frozenset({"containers", "initContainers", "securityContext", "volumes"})
_OF_REPLICA_SETS = frozenset({"selector", "template"})


def trim(item: Object) -> Object:
    """A copy of the object without what nobody reads, and with each short text in memory once."""
    trimmed: Object = _pack(_cut(item))
    return trimmed


def _cut(item: Object) -> Object:
    if item["kind"] == NODE.name:
        return _trim_node(item)
    if item["kind"] == RESOURCE_SLICE.name:
        return _trim_slice(item)
    trimmed = {**item, "metadata": _without(item["metadata"], {"managedFields"})}
    if item["kind"] == POD.name and "spec" in item:
        trimmed["spec"] = _trim_pod_spec(item["spec"])
        if told := _last_told(item):
            trimmed["metadata"]["managedFields"] = [told]
    elif item["kind"] == REPLICA_SET.name and "spec" in item:
        trimmed["spec"] = _without(item["spec"], _OF_REPLICA_SETS)
    elif item["kind"] == DEPLOYMENT.name and (rivals := _list_rivals(item)):
        trimmed["metadata"]["managedFields"] = rivals
    return trimmed


def _trim_pod_spec(spec: Object) -> Object:
    containers = {
        name: [_without(one, _OF_CONTAINERS) for one in spec[name]]
        for name in ("containers", "initContainers")
        if name in spec
    }
    return {**_without(spec, _OF_POD_SPECS), **containers}


def _pack(part: Any) -> Any:
    """JSON's parser makes each key and each word anew; that is half of what objects weigh.

    An interned text goes when the last object goes that has it.
    """
    if isinstance(part, dict):
        return {intern(name): _pack(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_pack(one) for one in part]
    if isinstance(part, str) and len(part) <= LONGEST_SHARED:
        return intern(part)
    return part


def _without(part: Object, names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in names}


def _list_rivals(deployment: Object) -> list[Object]:
    """Who else owns the replicas; what else they own nobody reads."""
    return [
        {"manager": entry["manager"], "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        for entry in deployment["metadata"].get("managedFields") or ()
        if entry.get("manager") != FIELD_MANAGER
        and "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]


def _last_told(pod: Object) -> Object | None:
    """When the status was written last, of a pod that runs and is not ready."""
    status = pod.get("status") or {}
    ready = {"type": "Ready", "status": "True"}
    is_ready = any(ready.items() <= one.items() for one in status.get("conditions") or ())
    if status.get("phase") != "Running" or is_ready:
        return None
    fields = pod["metadata"].get("managedFields") or ()
    times = [
        entry["time"]
        for entry in fields
        if entry.get("subresource") == "status" and entry.get("time")
    ]
    return {"subresource": "status", "time": max(times)} if times else None


def _trim_node(item: Object) -> Object:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    # Without its heartbeat, which would make it another node every minute.
    ready = [
        {"type": one["type"], "status": one["status"]}
        for one in status.get("conditions") or ()
        if one["type"] == "Ready"
    ]
    return {
        "kind": NODE.name,
        "metadata": _trim_metadata(item),
        "spec": {name: spec[name] for name in ("taints", "unschedulable") if spec.get(name)},
        "status": {"allocatable": status.get("allocatable") or {}, "conditions": ready},
    }


def _trim_slice(item: Object) -> Object:
    """The devices that have memory."""
    spec = item["spec"]
    devices = [
        {name: device.get(name) or {} for name in ("attributes", "capacity")}
        for device in spec.get("devices") or ()
        if any(name.endswith("memory") for name in device.get("capacity") or ())
    ]
    node_name = spec.get("nodeName", "")
    return {
        "kind": RESOURCE_SLICE.name,
        "metadata": _trim_metadata(item),
        "spec": {"driver": spec["driver"], "nodeName": node_name, "devices": devices},
    }


def _trim_metadata(item: Object) -> Object:
    metadata = item["metadata"]
    names = ("name", "uid", "resourceVersion", "labels")
    return {name: metadata[name] for name in names if name in metadata}
