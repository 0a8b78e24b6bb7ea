"""An InferenceService as its user sees it: manifest, conditions, pods and endpoint."""

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cluster_api import Object, path_of, wait_until
from namespace import GIVE_UP_SECONDS, Namespace
from route import reach

MODEL_URI = "oci://localhost/smollm2:q4_1"
RESOURCE = "inferenceservices.forebay.dev"
SERVING_LABEL = "forebay.dev/inference-service"
INSPECTION_LABEL = "forebay.dev/inspection-of"


def build_service(name: str, **spec: Any) -> Object:
    """Return a manifest of SmolLM2 in float32 on a CPU; a field given replaces the whole field."""
    defaults = {
        "model": {"uri": MODEL_URI},
        "device": "CPU",
        "engine": {"dtype": "float32", "maxModelLen": 512, "maxNumSeqs": 16},
        "drain": {"timeoutSeconds": 120, "lameDuckSeconds": 3},
    }
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": defaults | spec,
    }


class ServedModel:
    """One InferenceService of a namespace; it may not exist yet."""

    def __init__(self, namespace: Namespace, name: str) -> None:
        self.namespace = namespace
        self.name = name

    @property
    def serving(self) -> str:
        """The selector of its serving pods."""
        return f"{SERVING_LABEL}={self.name}"

    def read(self) -> Object:
        """Return the object."""
        found = self.namespace.get("inferenceservices", self.name)
        if found is None:
            raise LookupError(f"InferenceService {self.name} does not exist")
        return found

    def read_last_applied(self) -> Object:
        """Return the manifest of the last `kubectl apply`."""
        view = ("apply", "view-last-applied", f"{RESOURCE}/{self.name}", "--output=json")
        manifest: Object = json.loads(self.namespace.kubectl(*view))
        return manifest

    def patch(self, change: Object) -> None:
        """`kubectl patch` its spec."""
        patch = ("patch", f"{RESOURCE}/{self.name}", "--type=merge", "--patch", json.dumps(change))
        self.namespace.kubectl(*patch)

    def wait_condition(
        self, type_: str, status: str, reason: str = "", give_up_seconds: float = GIVE_UP_SECONDS
    ) -> Object:
        """Wait until a condition of the present generation is as wanted."""

        def is_wanted(service: Object) -> bool:
            found = condition(service, type_)
            return found.get("status") == status and reason in ("", found["reason"])

        what = f"{type_}={status} {reason}".strip()
        seen = self.namespace.wait_for(
            "inferenceservices", self.name, is_wanted, what, give_up_seconds
        )
        return condition(seen, type_)

    def wait_ready(self, give_up_seconds: float = 240.0) -> Object:
        """Wait until this generation serves with all its replicas, and return the object."""
        self.wait_condition("Ready", "True", give_up_seconds=give_up_seconds)
        return self.read()

    def pods(self) -> list[Object]:
        """Return the serving pods, those being deleted included."""
        return self.namespace.list("pods", self.serving)

    def wait_pods(self, num_pods: int, give_up_seconds: float = 240.0) -> list[Object]:
        """Wait until exactly so many serving pods exist, all ready and none being deleted."""

        def is_settled(pods: list[Object]) -> bool:
            return len(pods) == num_pods and all(is_ready(pod) for pod in pods)

        return wait_until(self.pods, is_settled, f"{num_pods} ready pods", give_up_seconds)

    def base_url(self) -> str:
        """Return the API's address, once the Service is there."""
        return f"{reach(self.namespace, self.name)}/v1"

    def load(self, pod_name: str) -> dict[str, float]:
        """Return what a pod says about its load."""
        answer: dict[str, float] = json.loads(self._ask_pod(pod_name, "load"))
        return answer

    def metrics(self, pod_name: str) -> str:
        """Return a pod's metrics in Prometheus' text format."""
        return self._ask_pod(pod_name, "metrics")

    def _ask_pod(self, pod_name: str, path: str) -> str:
        pod = path_of("pods", self.namespace.name, f"{pod_name}:8000")
        return self.namespace.api.get_text(f"{pod}/proxy/{path}")


def condition(service: Object, type_: str) -> Object:
    """Return a condition that speaks of the present generation, or {}."""
    generation = service["metadata"]["generation"]
    for found in service.get("status", {}).get("conditions", []):
        if found["type"] == type_ and found["observedGeneration"] == generation:
            wanted: Object = found
            return wanted
    return {}


def sum_metric(metrics: str, name: str) -> float:
    """Return the sum of a metric over its labels; it has to be there.

    Raises: LookupError where no sample carries the name.
    """
    samples = [
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == name
    ]
    if not samples:
        raise LookupError(f"there is no {name} among the metrics")
    return float(sum(samples))


def is_ready(pod: Object) -> bool:
    """Say whether a pod gets traffic and will stay."""
    conditions = pod["status"].get("conditions", [])
    return "deletionTimestamp" not in pod["metadata"] and any(
        found["type"] == "Ready" and found["status"] == "True" for found in conditions
    )


def names(objects: list[Object]) -> set[str]:
    """Return the objects' names."""
    return {found["metadata"]["name"] for found in objects}
