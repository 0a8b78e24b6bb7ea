"""Plays what is missing beside a bare API server: the Job and Deployment controllers and the
kubelet.

Only what the operator can see is played: objects, owners, labels and statuses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api_server import ApiServer
from observed_builder import SMOLLM2

PATHS = {
    "inferenceservices": "/apis/forebay.dev/v1alpha1",
    "vramquotas": "/apis/forebay.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "pods": "/api/v1",
    "services": "/api/v1",
    "serviceaccounts": "/api/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
}
CHILDREN = (
    "deployments",
    "controllerrevisions",
    "jobs",
    "services",
    "serviceaccounts",
    "poddisruptionbudgets",
)


@dataclass(frozen=True)
class PlayedNode:
    """One namespace of an API server, and the parts of a cluster that a test plays in it."""

    server: ApiServer
    namespace: str

    def path(self, plural: str, name: str = "") -> str:
        root = f"{PATHS[plural]}/namespaces/{self.namespace}/{plural}"
        return f"{root}/{name}" if name else root

    def get(self, plural: str, name: str) -> dict[str, Any] | None:
        """One object, or None."""
        status, item = self.server.request("GET", self.path(plural, name))
        return item if status == 200 else None

    def list(self, plural: str) -> list[dict[str, Any]]:
        """All objects of a kind in the namespace."""
        answer = self.server.request("GET", self.path(plural))[1]
        kind = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        return [{**kind, **item} for item in answer["items"]]

    def create(self, plural: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object; its status with it."""
        status, item = self.server.request("POST", self.path(plural), manifest)
        if status != 201:
            raise RuntimeError(item["message"])
        if "status" in manifest:
            return self.patch_status(plural, item["metadata"]["name"], manifest["status"])
        return dict(item)

    def patch_status(
        self, plural: str, name: str, part: dict[str, Any], *borne: int
    ) -> dict[str, Any]:
        """Merge into an object's status; RuntimeError where that is refused with no borne code."""
        path = f"{self.path(plural, name)}/status"
        kind = "application/merge-patch+json"
        status, item = self.server.request("PATCH", path, {"status": part}, kind)
        if status not in (200, *borne):
            raise RuntimeError(item["message"])
        return dict(item)

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """A condition of an InferenceService; empty where it has none."""
        service = self.get("inferenceservices", name) or {}
        found = (service.get("status") or {}).get("conditions") or ()
        return next((dict(one) for one in found if one["type"] == kind), {})

    def versions(self) -> dict[str, str]:
        """Resource versions of all children."""
        return {
            f"{plural}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for plural in CHILDREN
            for item in self.list(plural)
        }

    def finish_inspection(self, job: dict[str, Any], message: str = "") -> None:
        """Play the Job controller and the kubelet: one pod that ran, and what it said last."""
        template = job["spec"]["template"]
        state = {"exitCode": 0, "reason": "Completed", "message": message or SMOLLM2.to_json()}
        container = {**_container("inspect"), "state": {"terminated": state}, "ready": False}
        pod = {
            **self._pod(job, f"{job['metadata']['name']}-x", template),
            "status": {"phase": "Succeeded", "containerStatuses": [container]},
        }
        self.create("pods", pod)
        done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        met = {**done, "type": "SuccessCriteriaMet"}
        times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}
        status = {"succeeded": 1, "conditions": [met, done], **times}
        self.patch_status(
            "jobs", job["metadata"]["name"], status, 404
        )  # it may go once its pod was read

    def roll_out(
        self,
        deployment: dict[str, Any],
        addresses: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        """Play the Deployment controller and the kubelet: a ReplicaSet and its pods, ready."""
        spec, name = deployment["spec"], deployment["metadata"]["name"]
        template = spec["template"]
        labels = {**template["metadata"]["labels"], "pod-template-hash": "1"}
        hashed = {**template, "metadata": {**template["metadata"], "labels": labels}}
        replica_set = self.create(
            "replicasets",
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": self._metadata(deployment, f"{name}-1", labels),
                "spec": {
                    "replicas": spec["replicas"],
                    "selector": {"matchLabels": labels},
                    "template": hashed,
                },
                "status": {"replicas": spec["replicas"], "observedGeneration": 1},
            },
        )
        for number in range(spec["replicas"]):
            pod = self._pod(replica_set, f"{name}-1-{number}", hashed)
            ip = addresses[number % len(addresses)]
            self.create(
                "pods", {**pod, "status": {**READY_POD, "podIP": ip, "podIPs": [{"ip": ip}]}}
            )
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        self.patch_status(
            "deployments",
            name,
            {
                "observedGeneration": deployment["metadata"]["generation"],
                **dict.fromkeys(counts, spec["replicas"]),
            },
        )

    def collect_garbage(self) -> None:
        """Play the garbage collector: delete all that belonged to services that are gone."""
        services = {item["metadata"]["uid"] for item in self.list("inferenceservices")}
        gone = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        alive = services
        for plurals in (CHILDREN, ("replicasets",), ("pods",)):
            items = [(plural, item) for plural in plurals for item in self.list(plural)]
            for plural, item in items:
                owners = item["metadata"].get("ownerReferences") or ()
                if any(one["uid"] not in alive for one in owners):
                    self.server.request("DELETE", self.path(plural, item["metadata"]["name"]), gone)
            alive = alive | {
                item["metadata"]["uid"] for plural in plurals for item in self.list(plural)
            }

    def _pod(self, owner: dict[str, Any], name: str, template: dict[str, Any]) -> dict[str, Any]:
        metadata = self._metadata(owner, name, template["metadata"]["labels"])
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    def _metadata(self, owner: dict[str, Any], name: str, labels: dict[str, str]) -> dict[str, Any]:
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": labels,
            "ownerReferences": [reference],
        }


def _container(name: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "", "restartCount": 0}


READY_POD = {
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ],
    "containerStatuses": [
        {
            **_container("runtime"),
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
    ],
}
