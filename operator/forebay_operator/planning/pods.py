"""What a raw Pod says of itself: small readers without judgement."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from forebay_operator.kinds import TEMPLATE_HASH_LABEL
from forebay_operator.objects import uid_of
from forebay_operator.observed import Object, PodLoad
from forebay_operator.planning.situation import find_condition
from forebay_operator.planning.timestamps import parse_time

RUNTIME_CONTAINER = "runtime"


def pod_name(pod: Object) -> str:
    name: str = pod["metadata"]["name"]
    return name


def is_leaving(pod: Object) -> bool:
    """It has a deletion timestamp: it drains, and nothing wants it back."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def seconds_overdue(pod: Object, now: datetime) -> float:
    """How long ago the kubelet should have ended a pod that leaves; negative while it may drain."""
    return (now - parse_time(pod["metadata"]["deletionTimestamp"])).total_seconds()


def is_finished(pod: Object) -> bool:
    """Its containers ended for good, as after an eviction."""
    return _status(pod).get("phase") in ("Succeeded", "Failed")


def is_ready(pod: Object) -> bool:
    """It is an endpoint of the Service."""
    return pod_condition(pod, "Ready").get("status") == "True" and not is_leaving(pod)


def created_at(thing: Object) -> datetime:
    """Of a pod, or of any other object."""
    return parse_time(thing["metadata"]["creationTimestamp"])


def template_hash(pod: Object) -> str:
    """Which template it was made from; empty where the label is missing."""
    found: str = (pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH_LABEL, "")
    return found


def pod_condition(pod: Object, condition_type: str) -> Object:
    return find_condition(_status(pod).get("conditions"), condition_type)


def container_status(pod: Object, container: str) -> Object:
    """The kubelet's report on a container; empty before there is one."""
    return _named(_status(pod).get("containerStatuses"), container)


def container_spec(pod: Object, container: str) -> Object:
    return _named((pod.get("spec") or {}).get("containers"), container)


def load_of(pod: Object, loads: Mapping[str, PodLoad]) -> PodLoad | None:
    """Its last load; None where it did not answer."""
    load = loads.get(uid_of(pod))
    return load if load is not None and load.answered else None


def _named(entries: Any, name: str) -> Object:
    found: Object = next((entry for entry in entries or () if entry.get("name") == name), {})
    return found


def _status(pod: Object) -> Object:
    status: Object = pod.get("status") or {}
    return status
