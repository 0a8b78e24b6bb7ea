"""A release of the chart on a test's API server, by helm, and its operator as a process of this
machine.

kwok plays the pod of the operator's Deployment; the process that is started here does its work, by
the command, the environment and the account that the Deployment names.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from api_server import ApiServer
from chart import CHART, run_helm
from free_ports import free_ports
from operator_process import OperatorProcess, run_command, wait_until

REGISTRY = "--set=image.registry=localhost"


@dataclass(frozen=True)
class Release:
    """One release, installed or not."""

    server: ApiServer
    name: str = "forebay"
    namespace: str = "forebay-system"

    @property
    def operator(self) -> str:
        """The name of its Deployment and of its account."""
        return f"{self.name}-operator"

    def helm(self, *arguments: str | Path) -> str:
        """Run helm in its namespace."""
        where = ("--kubeconfig", self.server.kubeconfig, "--namespace", self.namespace)
        return run_helm(*where, *arguments)

    def upgrade(self, *flags: str, chart: Path = CHART) -> str:
        """Install it or upgrade it, and wait for its pods; what its user reads."""
        options = ("--create-namespace", "--wait", "--timeout=60s", REGISTRY)
        return self.helm("upgrade", "--install", self.name, chart, *options, *flags)

    def uninstall(self) -> str:
        """Take it away; what its user reads."""
        return self.helm("uninstall", self.name, "--wait", "--timeout=60s")

    def deployment(self) -> dict[str, Any]:
        """The operator's Deployment."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.operator}"
        status, found = self.server.request("GET", path)
        if status != 200:
            raise RuntimeError(found["message"])
        return dict(found)

    @contextmanager
    def operating(self, log_path: Path) -> Iterator[OperatorProcess]:
        """Run its operator until it leads, and end it with the block."""
        spec = self.deployment()["spec"]["template"]["spec"]
        account = spec["serviceAccountName"]
        token = self.server.kubectl("create", "token", account, "-n", self.namespace).stdout
        kubeconfig = self.server.kubeconfig_with_token(f"{self.name}-{account}", token.strip())
        [container] = spec["containers"]
        environ = {one["name"]: one.get("value", "") for one in container["env"]}
        environ |= {"POD_NAME": log_path.name, "POD_NAMESPACE": self.namespace}
        environ |= {"KUBECONFIG": str(kubeconfig), "FOREBAY_METRICS_PORT": "127.0.0.1:0"}
        own, loopback = "0.0.0.0:8080", f"127.0.0.1:{free_ports(1)[0]}"
        # Probes are answered on a free port, and on loopback alone.
        command = [
            sys.executable,
            "-m",
            *(one.replace(own, loopback) for one in container["command"]),
        ]
        with run_command(command, environ, log_path, f"http://{loopback}/healthz") as running:
            running.wait_for("Lease was acquired")
            yield running


def copy_chart(folder: Path, version: str, **values: Any) -> Path:
    """A chart of another version, with other default values at the top, packed in `folder`."""
    source = folder / version / "forebay"
    shutil.copytree(CHART, source)
    edit_yaml(source / "Chart.yaml", lambda chart: chart | {"version": version})
    edit_yaml(source / "values.yaml", lambda defaults: defaults | values)
    return source


def package(source: Path) -> Path:
    """What `helm package` makes of a chart, beside it."""
    said = run_helm("package", source, "--destination", source.parent)
    return Path(said.strip().rpartition(" ")[2])


def edit_yaml(path: Path, change: Any) -> None:
    """Replace a file's content by what `change` makes of it."""
    path.write_text(yaml.safe_dump(change(yaml.safe_load(path.read_text()))))


def apply_service(
    server: ApiServer, namespace: str, name: str, version: str = "v1alpha1", **spec: Any
) -> None:
    """Apply an InferenceService that runs on played nodes."""
    service = {
        "apiVersion": f"forebay.dev/{version}",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": {"uri": "oci://localhost/smollm2:q4_1"}, "device": "CPU"} | spec,
    }
    server.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(service))


def wait_ready(server: ApiServer, namespace: str, name: str) -> None:
    """Wait until a service is Ready for its present generation."""
    path = f"/apis/forebay.dev/v1alpha1/namespaces/{namespace}/inferenceservices/{name}"

    def is_ready() -> bool:
        service = server.request("GET", path)[1]
        generation = service["metadata"]["generation"]
        return any(
            (one["type"], one["status"], one["observedGeneration"]) == ("Ready", "True", generation)
            for one in (service.get("status") or {}).get("conditions", ())
        )

    wait_until(f"{namespace}/{name} is Ready", is_ready)
