"""Flux's own applier, kustomize-controller, as a process against a test's API server.

Its source-controller is played: a GitRepository's artifact is a tarball that this serves on
loopback, and a new commit is a new artifact.
"""

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from api_server import BINARIES, ApiServer
from program import running

SOURCES = {"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories"}
SOURCES["Bucket"] = "buckets"
GROUP = "source.toolkit.fluxcd.io"
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass
class Flux:
    """A running applier and the tarballs that it is given."""

    server: ApiServer
    folder: Path
    address: str
    commits: list[str] = field(default_factory=list)

    def commit(self, namespace: str, files: Mapping[str, Any]) -> str:
        """Have the namespace's repository hold these manifests and nothing else; the revision."""
        packed = _pack(files)
        digest = hashlib.sha256(packed).hexdigest()
        (self.folder / f"{digest}.tar.gz").write_bytes(packed)
        revision = f"main@sha1:{digest[:40]}"
        artifact = {
            "path": f"{digest}.tar.gz",
            "url": f"{self.address}/{digest}.tar.gz",
            "revision": revision,
            "digest": f"sha256:{digest}",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
            "size": len(packed),
        }
        repository = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "GitRepository",
            "metadata": {"name": "models", "namespace": namespace},
            "spec": {"interval": "1h", "url": "https://git.test/models"},
        }
        text = yaml.safe_dump(repository)
        self.server.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        path = f"/apis/{GROUP}/v1/namespaces/{namespace}/gitrepositories/models/status"
        status = {"status": {"artifact": artifact, "observedGeneration": 1}}
        code, answer = self.server.request("PATCH", path, status, "application/merge-patch+json")
        if code != 200:
            raise RuntimeError(answer["message"])
        return revision


@contextmanager
def run_flux(server: ApiServer, folder: Path) -> Iterator[Flux]:
    """Install the kinds that it needs, start it, and end it with the block."""
    if not (BINARIES / "kustomize-controller").exists():
        raise RuntimeError("run `e2e/cluster/cluster build kustomize-controller` first")
    crds = BINARIES.parent / "crds/kustomizations.yaml"
    kinds = [_source_kind(*names) for names in SOURCES.items()]
    server.kubectl("apply", "--server-side", "-f", str(crds))
    server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(kinds))
    server.wait_for_kinds()
    with _serve(folder) as address, _controller(server, folder):
        yield Flux(server, folder, address)


def _controller(server: ApiServer, folder: Path) -> Any:
    environ = {"KUBECONFIG": str(server.kubeconfig), "TMPDIR": str(folder)}
    command = ("env", *(f"{name}={text}" for name, text in environ.items()))
    flags = ("--metrics-addr=0", "--health-addr=0", "--log-encoding=console", "--no-remote-bases")
    program = BINARIES / "kustomize-controller"
    return running(folder, "kustomize-controller", *command, program, *flags)


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def _pack(files: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, manifest in files.items():
            text = yaml.safe_dump(manifest).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


def _source_kind(kind: str, plural: str) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": _ANYTHING, "status": _ANYTHING},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }
