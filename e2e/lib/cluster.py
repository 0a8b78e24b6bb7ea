"""The clusters that the demo and the tests run on, and the choice between them.

`kind` where Docker answers; else upstream Kubernetes as processes of this host (e2e/cluster).
"""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from helm import Helm
from kubectl import Kubectl

IMAGES = ("operator", "runtime")
"""The targets of the Containerfile."""


class Cluster(Protocol):
    """A cluster of this machine, with the tool that builds images for it."""

    @property
    def kubectl(self) -> Kubectl:
        """The client that is bound to it."""

    @property
    def helm(self) -> Helm:
        """The installer of charts that is bound to it."""

    def prepare(self) -> None:
        """Build or fetch the programs that it is made of; returns at once where that is done."""

    def up(self) -> None:
        """Start it; returns at once where it runs."""

    def down(self) -> None:
        """Stop it; what was built stays."""

    def remove_images(self) -> None:
        """Remove the images that were built here, of this source and of older ones."""

    def build(self, target: str, tag: str) -> None:
        """Build a target of the Containerfile, unless the tag exists."""

    def ship(self, tag: str) -> None:
        """Bring a built image to the node, unless it is there."""

    def load(self, archive: Path, tag: str) -> None:
        """Bring an image archive to the node, unless an image of that tag is there."""

    def reach(self, namespace: str, service: str) -> AbstractContextManager[str]:
        """Give the URL at which this machine reaches a Service, while the context lasts."""


def choose_cluster() -> Cluster:
    """Return kind where Docker answers, else the local cluster."""
    from kind_cluster import KindCluster
    from local_cluster import LocalCluster

    return KindCluster() if has_docker() else LocalCluster()


def has_docker() -> bool:
    """Say whether a Docker daemon answers."""
    try:
        asked = subprocess.run(["docker", "version"], capture_output=True, timeout=20, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
