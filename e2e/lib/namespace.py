"""A namespace of its own for each test, and what a user does in it with kubectl."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster_api import ClusterApi, Object, path_of, wait_until
from kubectl import Kubectl

GIVE_UP_SECONDS = 120.0
"""When a wait is called off; far over what it takes, so that a busy machine fails nothing."""


class Namespace:
    """One namespace."""

    def __init__(self, kubectl: Kubectl, api: ClusterApi, name: str) -> None:
        self.cluster_kubectl = kubectl
        self.api = api
        self.name = name

    def apply(self, *manifests: Object) -> str:
        """`kubectl apply` the manifests, as their user would."""
        documents = "\n---\n".join(json.dumps(manifest) for manifest in manifests)
        return self.kubectl("apply", "-f", "-", stdin=documents)

    def apply_file(self, path: Path) -> str:
        """`kubectl apply -f` a file."""
        return self.kubectl("apply", "-f", str(path))

    def empty(self) -> None:
        """Delete what was applied, and wait until no pod is left.

        The namespace controller waits half of a pod's grace period before it looks again, which
        for pods that could drain for minutes is long after they have gone.
        """
        self.kubectl("delete", "inferenceservices.forebay.dev", "--all", "--ignore-not-found")
        self.wait_gone(["pods"], "app.kubernetes.io/managed-by=forebay", GIVE_UP_SECONDS)

    def delete(self) -> None:
        """Ask for its deletion with all that is in it."""
        delete = ("delete", "namespace", self.name, "--wait=false", "--ignore-not-found")
        self.cluster_kubectl(*delete)

    def wait_deleted(self) -> None:
        """Wait until nothing of it is left."""
        wait_until(
            lambda: self.api.get(f"/api/v1/namespaces/{self.name}"),
            lambda found: found is None,
            f"namespace {self.name} is gone",
            GIVE_UP_SECONDS,
        )

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in this namespace."""
        return self.cluster_kubectl("--namespace", self.name, *arguments, stdin=stdin)

    def get(self, kind: str, name: str) -> Object | None:
        """Return one object (`kind` is the plural), or None."""
        return self.api.get(path_of(kind, self.name, name))

    def list(self, kind: str, label_selector: str = "") -> list[Object]:
        """Return all objects of a kind."""
        return self.api.list(path_of(kind, self.name), label_selector)

    def wait_for(
        self,
        kind: str,
        name: str,
        accept: Callable[[Object], bool],
        what: str,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> Object:
        """Wait until one object is there and is as wanted."""
        seen = wait_until(
            lambda: self.get(kind, name),
            lambda found: found is not None and accept(found),
            f"{kind}/{name}: {what}",
            give_up_seconds,
        )
        assert seen is not None
        return seen

    def wait_gone(self, kinds: Sequence[str], label_selector: str, give_up_seconds: float) -> None:
        """Wait until no object of these kinds carries the labels."""
        wait_until(
            lambda: [
                f"{kind}/{found['metadata']['name']}"
                for kind in kinds
                for found in self.list(kind, label_selector)
            ],
            lambda left: not left,
            f"nothing left of {label_selector or 'the namespace'}",
            give_up_seconds,
        )
