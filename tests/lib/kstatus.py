"""How kstatus reads an object's state, and by it Flux, kpt and others: the oracle of GitOps tests.

Source: sigs.k8s.io/cli-utils, pkg/kstatus; its rules for kinds that it does not know by name.
"""

from collections.abc import Mapping
from typing import Any, Literal

State = Literal["InProgress", "Failed", "Current", "Terminating"]


def read_state(item: Mapping[str, Any]) -> State:
    """What kstatus makes of an object of a custom kind; an object that says nothing is Current."""
    metadata, status = item["metadata"], item.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for one in conditions:
        if one["status"] == "True" and one["type"] == "Reconciling":
            return "InProgress"
        if one["status"] == "True" and one["type"] == "Stalled":
            return "Failed"
    ready = next((one for one in conditions if one["type"] == "Ready"), None)
    return "Current" if ready is None or ready["status"] == "True" else "InProgress"
