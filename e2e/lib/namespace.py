"""A namespace of its own for each test, and what a user does in it with kubectl."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster_api import ClusterApi, Object, path_of, wait_until

GIVE_UP_SECONDS = 120.0
"""When a wait is called off; far over what it takes, so that a busy machine fails nothing."""


class Refused(Exception):
    """kubectl ended with an error; the message is what it printed."""


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Run kubectl and return what it printed.

    Raises: Refused with what it printed as an error.
    """
    command = [os.environ.get("KUBECTL", "kubectl"), *arguments]
    run = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    if run.returncode:
        raise Refused(run.stderr.strip())
    return run.stdout


class Namespace:
    """One namespace."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self.api = api
        self.name = name

    def apply(self, *manifests: Object) -> str:
        """`kubectl apply` the manifests, as their user would."""
        documents = "\n---\n".join(json.dumps(manifest) for manifest in manifests)
        return self.kubectl("apply", "-f", "-", stdin=documents)

    def apply_file(self, path: Path) -> str:
        """`kubectl apply -f` a file."""
        return self.kubectl("apply", "-f", str(path))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in this namespace."""
        return kubectl("--namespace", self.name, *arguments, stdin=stdin)

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
