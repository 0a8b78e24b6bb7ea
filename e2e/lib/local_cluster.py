"""Upstream Kubernetes as processes of this host, and buildah: where Docker does not run."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import buildah
from commands import CommandError, run
from containerd import Containerd
from helm import Helm
from home import HOME, REPOSITORY
from kubectl import Kubectl

SCRIPT = REPOSITORY / "e2e/cluster/cluster"


class LocalCluster:
    """The cluster script, as a Cluster."""

    def __init__(self) -> None:
        self._node = Containerd(str(SCRIPT), "ctr")

    @cached_property
    def kubectl(self) -> Kubectl:
        """The client that was built with it."""
        return Kubectl(HOME / "cluster/bin/kubectl", HOME / "cluster/kubeconfig")

    @cached_property
    def helm(self) -> Helm:
        """The helm that was built with it."""
        return Helm(HOME / "cluster/bin/helm", self.kubectl.kubeconfig)

    def prepare(self) -> None:
        """Compile Kubernetes and what belongs to it, and install what they and the images need."""
        run(SCRIPT, "build", log="cluster")

    def up(self) -> None:
        """Start it, or find it running."""
        run(SCRIPT, "up", log="cluster")

    def down(self) -> None:
        """Stop all of it; the node's images stay on disk."""
        run(SCRIPT, "down", log="cluster")

    def remove_images(self) -> None:
        """They lie in the folders that `make clean` removes."""

    def build(self, target: str, tag: str) -> None:
        """Build with buildah, on a base of Debian's Python."""
        run(SCRIPT, "install", *buildah.PACKAGES, log="images")
        if not buildah.has_image(tag):
            buildah.build(target, tag)

    def ship(self, tag: str) -> None:
        """Send the node those layers of a built image that it lacks."""
        if not self._node.has_image(tag):
            held = self._node.find_layers()
            with buildah.exported(tag, held) as layout:
                self._node.send(layout, tag, held)

    def load(self, archive: Path, tag: str) -> None:
        """Import an archive into the node's containerd."""
        if not self._node.has_image(tag):
            run(SCRIPT, "load", archive, log="cluster")

    @contextmanager
    def reach(self, namespace: str, service: str) -> Iterator[str]:
        """Give the Service's own address: kube-proxy runs on this host."""
        found = self.kubectl.get("service", service, namespace)
        if found is None:
            raise CommandError(f"there is no Service {namespace}/{service}")
        yield f"http://{found['spec']['clusterIP']}:{found['spec']['ports'][0]['port']}"
