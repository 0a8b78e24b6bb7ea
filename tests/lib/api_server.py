"""A real etcd and kube-apiserver for component tests: no kubelet, no controllers, four seconds to
start.

The binary is the one that `e2e/cluster/cluster build` compiles; everything else lives in one
temporary folder.
"""

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

import yaml

from free_ports import free_ports
from program import Program

HOME = Path(os.environ.get("FOREBAY_HOME") or Path.home() / ".cache" / "forebay")
BINARIES = HOME / "cluster" / "bin"

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, Panic]
rules:
  - {level: None, users: [admin, "system:apiserver"]}
  - {level: Metadata}
"""


@dataclass(frozen=True)
class ApiServer:
    """A running API server, its kubeconfig files and its kubectl."""

    folder: Path
    url: str
    etcd: Program
    program: Program

    @property
    def kubeconfig(self) -> Path:
        """Credentials that may do everything."""
        return self.folder / "admin.kubeconfig"

    def kubectl(
        self, *arguments: str, stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; raises with its error output unless `check` is off."""
        done = subprocess.run(
            [BINARIES / "kubectl", "--kubeconfig", self.kubeconfig, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done

    def wait_for_kinds(self) -> None:
        """Wait until every CRD is established; for a moment kubectl fails on one that is new."""
        wait = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        deadline = time.monotonic() + 30
        while self.kubectl(*wait, check=time.monotonic() > deadline).returncode:
            time.sleep(0.1)

    def request(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, Any]:
        """Send one request as administrator and return its status and its answer."""
        data = None if body is None else json.dumps(body).encode()
        message = urllib.request.Request(self.url + path, data, {"Content-Type": kind})
        message.method = method
        try:
            with urllib.request.urlopen(message, context=trust(self.folder), timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def requests_of(self, user: str) -> list[dict[str, Any]]:
        """What a user asked of the server, as its audit log has it, in order."""
        paths = sorted(self.folder.glob("audit*.log"), key=lambda path: path.stat().st_mtime)
        lines = (line for path in paths for line in path.read_text().splitlines())
        entries = (json.loads(line) for line in lines if f'"{user}"' in line)
        return [one for one in entries if one["user"]["username"] == user]

    def wait_until_ready(self) -> None:
        """Wait until it answers; RuntimeError with the end of its log if it does not."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                address = f"{self.url}/readyz"
                with urllib.request.urlopen(address, context=trust(self.folder), timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        log = (self.folder / "kube-apiserver.log").read_text()[-3000:]
        raise RuntimeError(f"The API server did not become ready in 60 s:\n{log}")

    def kubeconfig_with_token(self, name: str, token: str, url: str = "") -> Path:
        """Write a kubeconfig whose user is a bearer token; `url` leads there by a detour."""
        return _write_kubeconfig(self.folder, name, url or self.url, {"token": token})


@contextmanager
def start_api_server(folder: Path) -> Iterator[ApiServer]:
    """Start etcd and kube-apiserver in `folder` and stop both at the end."""
    if not (BINARIES / "kube").exists():
        raise RuntimeError(f"{BINARIES / 'kube'} is missing: run `e2e/cluster/cluster build` first")
    etcd_port, peer_port, port = free_ports(3)
    _write_certificates(folder)
    (folder / "audit.yaml").write_text(AUDIT_POLICY)
    kube, etcd = BINARIES / "kube", f"http://127.0.0.1:{etcd_port}"
    server = ApiServer(
        folder,
        f"https://127.0.0.1:{port}",
        Program(folder, "etcd", (kube, "etcd", *_etcd_flags(folder, etcd, peer_port))),
        Program(
            folder, "kube-apiserver", (kube, "kube-apiserver", *_api_flags(folder, etcd, port))
        ),
    )
    credentials = {"client-certificate": str(folder / "admin.crt")}
    credentials["client-key"] = str(folder / "admin.key")
    _write_kubeconfig(folder, "admin", server.url, credentials)
    with ExitStack() as stack:
        for program in (server.etcd, server.program):
            stack.callback(program.stop)
            program.start()
        server.wait_until_ready()
        yield server


def _etcd_flags(folder: Path, etcd: str, peer_port: int) -> list[str]:
    return [
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={etcd}",
        f"--advertise-client-urls={etcd}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
    ]


def _api_flags(folder: Path, etcd: str, port: int) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/16",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'ca.key'}",
        f"--service-account-signing-key-file={folder / 'ca.key'}",
        # Nothing creates a namespace's default service account here.
        "--disable-admission-plugins=ServiceAccount",
        f"--cert-dir={folder}",
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    ]


@cache
def trust(folder: Path) -> SSLContext:
    """How an administrator speaks to the server of a folder."""
    context = create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    return context


def _write_certificates(folder: Path) -> None:
    if shutil.which("openssl") is None:
        raise RuntimeError("openssl is missing: install it, it makes the test certificates")
    authority = ["-x509", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test", "-days", "2"]
    _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", *authority)
    _certificate(folder, "server", "/CN=kube-apiserver", "IP:127.0.0.1,DNS:localhost")
    _certificate(folder, "admin", "/O=system:masters/CN=admin", "DNS:admin")


def _certificate(folder: Path, name: str, subject: str, names: str) -> None:
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\n")
    output = ["-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject]
    _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", *output)
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    files = ["-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", extensions.name]
    _openssl(folder, "x509", "-req", *files, *signing)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _write_kubeconfig(folder: Path, name: str, url: str, credentials: dict[str, str]) -> Path:
    cluster = {"server": url, "certificate-authority": str(folder / "ca.crt")}
    path = folder / f"{name}.kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config))
    return path
