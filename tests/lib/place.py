"""A namespace of the control plane, and what a test does in it as a user would."""

from typing import Any

import yaml

from operator_process import wait_until
from played_node import CHILDREN, PlayedNode

POOL = "gitops"
"""The nodes on which its pods run."""


def build_service(name: str = "smollm2", **spec: Any) -> dict[str, Any]:
    """An InferenceService whose pods the test's own node plays."""
    small = {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"}
    template = {"podTemplate": {"nodeSelector": {"pool": POOL}}}
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": small | template | spec,
    }


class Place(PlayedNode):
    """A namespace with what a test does in it as a user."""

    def apply(self, manifest: dict[str, Any], *flags: str) -> str:
        """What kubectl says when it applies a manifest."""
        return self.kubectl("apply", "-f", "-", *flags, stdin=self.text(manifest))

    def text(self, manifest: dict[str, Any]) -> str:
        """A manifest as a person writes it."""
        return yaml.safe_dump(manifest)

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """What kubectl prints, errors included."""
        done = self.server.kubectl("-n", self.namespace, *arguments, stdin=stdin, check=check)
        return done.stdout + done.stderr

    def wait_for(self, kind: str, status: str, name: str = "smollm2") -> dict[str, Any]:
        """Wait until a condition of the present generation has a status, and return it."""

        def check() -> dict[str, Any]:
            service = self.get("inferenceservices", name) or {"metadata": {}}
            found = self.condition(name, kind)
            is_now = found.get("observedGeneration") == service["metadata"].get("generation")
            return found if is_now and found["status"] == status else {}

        try:
            return wait_until(f"{kind}={status}", check)
        except AssertionError as error:
            raise AssertionError(f"{error}; Ready says {self.condition(name, 'Ready')}") from error

    def children(self) -> dict[str, dict[str, Any]]:
        """Whatever belongs to a service, by `plural/name`."""
        return {
            f"{plural}/{item['metadata']['name']}": item
            for plural in CHILDREN
            for item in self.list(plural)
            if item["metadata"].get("ownerReferences")
        }
