"""One InferenceService on a real control plane, with nodes of its own, and what its pods did.

A test plays the passing of time by moving the time of a condition into the past.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from api_server import ApiServer
from control_plane import add_node, remove_node
from operator_process import wait_until
from played_node import PlayedNode
from recording import Object, Recording, record

NAME = "smollm2"
MERGE = "application/merge-patch+json"
GPU_SPEC = {
    "model": {"uri": "oci://localhost/smollm2:q4_1"},
    "device": "GPU",
    "vram": {"gpuMemory": "24Gi"},
}
CPU_SPEC = {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"}


@dataclass
class RolledService:
    """A service in a namespace of its own."""

    node: PlayedNode
    pods_seen: Recording
    name: str = NAME

    @property
    def path(self) -> str:
        return self.node.path("inferenceservices", self.name)

    def another(self, name: str) -> "RolledService":
        """One more in the same namespace and on the same nodes."""
        return replace(self, name=name)

    def create(self, spec: dict[str, Any], **template: Any) -> None:
        """Create it; its pods run on the test's own nodes, and on no others."""
        manifest = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": self.name},
            "spec": {**spec, "podTemplate": self._placed(template)},
        }
        self.node.create("inferenceservices", manifest)

    def edit(self, **spec: Any) -> None:
        """Merge into its spec; None takes a field away."""
        if "podTemplate" in spec:
            spec["podTemplate"] = self._placed(spec["podTemplate"])
        status, answer = self.node.server.request("PATCH", self.path, {"spec": spec}, MERGE)
        if status != 200:
            raise RuntimeError(answer["message"])

    def status(self) -> Object:
        found: Object = (self.node.get("inferenceservices", self.name) or {}).get("status") or {}
        return found

    def says(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition that speaks of this generation."""
        service = self.node.get("inferenceservices", self.name) or {}
        found = self.node.condition(self.name, kind)
        if found.get("observedGeneration") != service["metadata"]["generation"]:
            return "", ""
        return found.get("status", ""), found.get("reason", "")

    def wait(self, kind: str, status: str, reason: str = "") -> str:
        """Wait until a condition of this generation says so; its message."""

        def has_come() -> bool:
            said = self.says(kind)
            return said[0] == status and reason in ("", said[1])

        what = f"{kind} is {status} {reason}"
        try:
            wait_until(what, has_come)
        except AssertionError as error:
            told = [
                (one["type"], one["status"], one["reason"], one["message"])
                for one in self.status().get("conditions", ())
            ]
            raise AssertionError(f"{what}: {told}") from error
        return str(self.node.condition(self.name, kind)["message"])

    def pods(self) -> list[Object]:
        """The serving pods that are not on their way out."""
        labelled = [one for one in self.node.list("pods") if _label(one) == self.name]
        return [one for one in labelled if not _is_leaving(one)]

    def deployment(self) -> Object:
        return self.node.get("deployments", self.name) or {}

    def events(self, reason: str) -> list[Object]:
        """Events about the service itself."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.node.namespace}/events"
        found = self.node.server.request("GET", path)[1]["items"]
        mine = [one for one in found if one["regarding"].get("name") == self.name]
        return [
            one
            for one in mine
            if (one["regarding"]["kind"], one["reason"]) == ("InferenceService", reason)
        ]

    def let_time_pass(self, plural: str, name: str, kind: str, seconds: float) -> None:
        """Have a condition begin that much earlier."""
        conditions = ((self.node.get(plural, name) or {}).get("status") or {})["conditions"]
        began = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        moved = [
            one | ({"lastTransitionTime": began} if one["type"] == kind else {})
            for one in conditions
        ]
        self.node.patch_status(plural, name, {"conditions": moved})

    def fewest_ready(self, num_wanted: int) -> int:
        """The fewest pods that served at once, from the first time that so many did."""
        alive: dict[str, Object] = {}
        counts = []
        for state in list(self.pods_seen.states):
            alive[state["metadata"]["uid"]] = state
            counts.append(sum(map(is_serving, alive.values())))
        return min(counts[counts.index(num_wanted) :])

    def num_born(self) -> int:
        """How many serving pods there have been."""
        pods = [one for one in self.pods_seen.states if _label(one) == self.name]
        return len({one["metadata"]["uid"] for one in pods})

    def _placed(self, template: dict[str, Any]) -> dict[str, Any]:
        return {**template, "nodeSelector": {"pool": self.node.namespace}}


@contextmanager
def rolled_service(
    server: ApiServer, namespace: str, *gpus: int, **resources: str
) -> Iterator[RolledService]:
    """A namespace and a node for each number of GPUs; the nodes go with the block."""
    node = PlayedNode(server, namespace)
    server.kubectl("create", "namespace", namespace)
    names = [f"{namespace}-{number}" for number in range(len(gpus))]
    for name, count in zip(names, gpus, strict=True):
        offered = {"nvidia_com__gpu": str(count), **resources}
        add_node(server, name, {"pool": namespace}, **offered)
    try:
        with record(server, f"/api/v1/namespaces/{namespace}/pods") as (pods,):
            yield RolledService(node, pods)
    finally:
        for name in names:
            remove_node(server, name)


def is_serving(pod: Object) -> bool:
    """Whether a pod was an endpoint in this state of it."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not pod.get("deleted") and not _is_leaving(pod)


def _label(pod: Object) -> str:
    """The service that a serving pod belongs to."""
    return str((pod["metadata"].get("labels") or {}).get("forebay.dev/inference-service", ""))


def _is_leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
