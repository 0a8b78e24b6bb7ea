"""helm as the tests and the demo use it, bound to one cluster."""

from dataclasses import dataclass
from pathlib import Path

from commands import read


@dataclass(frozen=True)
class Helm:
    """One helm and the kubeconfig that it speaks with."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str | Path) -> str:
        """Run it and return what it prints; CommandError when it fails."""
        return read(self.program, "--kubeconfig", self.kubeconfig, *arguments)
