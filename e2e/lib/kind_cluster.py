"""A kind cluster, with images built by Docker: where Docker answers."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from commands import CommandError, read, run
from containerd import Containerd
from helm import Helm
from home import HOME, REPOSITORY
from kubectl import Kubectl

KIND = "sigs.k8s.io/kind@v0.33.0"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
NAME = "forebay"
_FOLDER = HOME / "kind"
_MODULES = REPOSITORY / "e2e/cluster/kube"


class KindCluster:
    """kind and Docker, as a Cluster. What the machine lacks of kind, helm and kubectl is built."""

    def __init__(self) -> None:
        self._node = Containerd("docker", "exec", f"{NAME}-control-plane", "ctr", "-n", "k8s.io")

    @cached_property
    def kubectl(self) -> Kubectl:
        """The machine's kubectl, or the one that `prepare` built."""
        return Kubectl(_find("kubectl"), _FOLDER / "kubeconfig")

    @cached_property
    def helm(self) -> Helm:
        """The machine's helm, or the one that `prepare` built."""
        return Helm(_find("helm"), self.kubectl.kubeconfig)

    def prepare(self) -> None:
        """Build kind, helm and kubectl from their Go modules, unless they are there."""
        _FOLDER.mkdir(parents=True, exist_ok=True)
        for name, module in (("kind", KIND), ("helm", HELM)):
            if not _find(name).exists():
                _run_go("install", module)
        if not _find("kubectl").exists():
            where = ("-C", _MODULES, "-o", _FOLDER / "kubectl")
            _run_go("build", *where, "k8s.io/kubernetes/cmd/kubectl")

    def up(self) -> None:
        """Create the cluster, unless it is there."""
        if NAME not in read(_find("kind"), "get", "clusters").split():
            create = ("create", "cluster", "--name", NAME, "--wait", "120s")
            run(_find("kind"), *create, "--kubeconfig", self.kubectl.kubeconfig, log="kind")

    def down(self) -> None:
        """Delete the cluster; Docker keeps the images."""
        if _find("kind").exists():
            run(_find("kind"), "delete", "cluster", "--name", NAME, log="kind")

    def remove_images(self) -> None:
        """Have Docker remove the images that were built here, of this source and of older ones."""
        built = ("images", "--quiet", "--filter", "reference=localhost/forebay-*")
        if found := set(read("docker", *built).split()):
            run("docker", "image", "rm", "--force", *found, log="kind")

    def build(self, target: str, tag: str) -> None:
        """Build with Docker, the runtime without what a CPU never opens."""
        if read("docker", "images", "--quiet", tag).strip():
            return
        arguments = ("--target", target, "--tag", tag, "--build-arg", "DEVICE=cpu")
        command = ("docker", "build", *arguments, "-f", REPOSITORY / "Containerfile", REPOSITORY)
        run(*command, log="images", env={"DOCKER_BUILDKIT": "1"})

    def ship(self, tag: str) -> None:
        """Load a built image into the node."""
        if not self._node.has_image(tag):
            run(_find("kind"), "load", "docker-image", tag, "--name", NAME, log="kind")

    def load(self, archive: Path, tag: str) -> None:
        """Load an archive into the node."""
        if not self._node.has_image(tag):
            run(_find("kind"), "load", "image-archive", archive, "--name", NAME, log="kind")

    @contextmanager
    def reach(self, namespace: str, service: str) -> Iterator[str]:
        """Forward a free port of this machine to one pod of the Service."""
        command = self.kubectl.command("port-forward", "-n", namespace, f"service/{service}", ":80")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
            try:
                line = forwarding.stdout.readline() if forwarding.stdout else ""
                port = re.search(r"127\.0\.0\.1:(\d+)", line)
                if not port:
                    raise CommandError(f"no port was forwarded to {namespace}/{service}")
                yield f"http://127.0.0.1:{port[1]}"
            finally:
                forwarding.terminate()


def _run_go(*arguments: str | Path) -> None:
    go = read(REPOSITORY / "e2e/cluster/cluster", "go").strip()
    run(go, *arguments, log="kind", env={"GOBIN": str(_FOLDER), "CGO_ENABLED": "0"})


def _find(program: str) -> Path:
    """Return the machine's own program, else where `prepare` builds it."""
    return Path(shutil.which(program) or _FOLDER / program)
