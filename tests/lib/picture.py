"""What one service has come to, without what differs between two runs that went the same way: uids,
times, addresses, names that Kubernetes draws.

Two runs of the same story must end in equal pictures, whatever befell the operator in between.
A Job that is done is none of it: Kubernetes takes it away after its time to live.
"""

import json
import re
from typing import Any

from played_node import PlayedNode

KINDS = ("deployments", "replicasets", "controllerrevisions", "jobs", "services", "serviceaccounts")
_DRAWN_METADATA = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "generation"}
)
_DRAWN_SPEC = frozenset({"clusterIP", "clusterIPs"})
_COUNTS = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "succeeded")


def take_picture(node: PlayedNode, name: str = "smollm2") -> dict[str, Any]:
    """Children by kind and name, pods by owner and phase, and what the service says of itself."""
    service = node.get("inferenceservices", name)
    if service is None:
        raise RuntimeError(f"There is no InferenceService {name}")
    children = {
        f"{plural}/{item['metadata']['name']}": _draw(item, service["metadata"]["uid"])
        for plural in KINDS
        for item in node.list(plural)
        if not _is_passing(item)
    }
    pods = sorted(_draw_pod(pod) for pod in node.list("pods") if not _is_passing(pod))
    picture = {"children": children, "pods": pods, "status": _draw_status(service)}
    text = json.dumps(picture).replace(node.namespace, "NAMESPACE")
    for drawn, name in _name_hashes(node.list("replicasets")).items():
        text = text.replace(drawn, name)
    result: dict[str, Any] = json.loads(_without_uids(text))
    return result


def differences(left: Any, right: Any, place: str = "") -> list[str]:
    """Where two pictures differ, a line each."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = sorted(left.keys() | right.keys())
        found = (differences(left.get(key), right.get(key), f"{place}/{key}") for key in keys)
        return [line for lines in found for line in lines]
    return [] if left == right else [f"{place}: {left!r} is not {right!r}"]


def _name_hashes(replica_sets: list[dict[str, Any]]) -> dict[str, str]:
    """Kubernetes draws another hash for a template whose ReplicaSet of before is still going."""
    names: dict[str, str] = {}
    for item in replica_sets:
        labels = item["metadata"]["labels"]
        template = labels["forebay.dev/template-hash"]
        number = sum(name.startswith(template) for name in names.values())
        names[labels["pod-template-hash"]] = f"{template}-{number}"
    return names


def _is_passing(item: dict[str, Any]) -> bool:
    """Whether it is done, and will be taken away; or Kubernetes' own account of a namespace."""
    status = item.get("status") or {}
    is_done = item["kind"] == "Job" and "ttlSecondsAfterFinished" in item["spec"]
    is_done = is_done and bool(status.get("succeeded"))
    is_spent = item["kind"] == "Pod" and status.get("phase") == "Succeeded"
    return is_done or is_spent or item["metadata"]["name"] == "default"


def _draw(item: dict[str, Any], owner: str) -> dict[str, Any]:
    metadata = {key: said for key, said in item["metadata"].items() if key not in _DRAWN_METADATA}
    metadata.get("annotations", {}).pop("forebay.dev/applied", None)  # a digest, of a uid too
    references = metadata.pop("ownerReferences", ())
    spec = {key: said for key, said in item.get("spec", {}).items() if key not in _DRAWN_SPEC}
    status = item.get("status") or {}
    return {
        "metadata": metadata,
        "owners": [(one["kind"], one["name"], one["uid"] == owner) for one in references],
        "spec": spec,
        "data": item.get("data"),
        "revision": item.get("revision"),
        "counts": {count: status[count] for count in _COUNTS if count in status},
    }


def _draw_pod(pod: dict[str, Any]) -> tuple[str, str, bool]:
    owners = [f"{one['kind']}/{one['name']}" for one in pod["metadata"].get("ownerReferences", ())]
    is_leaving = "deletionTimestamp" in pod["metadata"]
    return ",".join(owners), pod["status"].get("phase", ""), is_leaving


def _draw_status(service: dict[str, Any]) -> dict[str, Any]:
    status = dict(service.get("status") or {})
    generation = service["metadata"]["generation"]
    drawn = {
        one["type"]: (one["status"], one["reason"], one["message"])
        for one in status.pop("conditions", ())
    }
    is_current = status.pop("observedGeneration", None) == generation
    return {**status, "conditions": drawn, "is_current": is_current}


def _without_uids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", text)
