"""kubectl as the tests and the demo use it, bound to one cluster."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import read


@dataclass(frozen=True)
class Kubectl:
    """One kubectl and the kubeconfig that it speaks with."""

    program: Path
    kubeconfig: Path

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line, for those that start it themselves."""
        return [str(self.program), "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run it and return what it prints; CommandError when it fails."""
        return read(*self.command(*arguments), stdin=stdin)

    def get(self, resource: str, name: str, namespace: str = "default") -> Any:
        """Return one object as parsed JSON, or None where there is none."""
        text = self("get", resource, name, "-n", namespace, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def list(self, resource: str, *arguments: str) -> list[Any]:
        """Return the objects that `kubectl get RESOURCE ARGUMENTS` finds."""
        items: list[Any] = json.loads(self("get", resource, *arguments, "-o", "json"))["items"]
        return items
