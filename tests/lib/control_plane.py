"""A whole control plane for component tests: a real API server, controller-manager and scheduler,
and kwok that plays nodes and pods. No container runs.

What becomes of a pod is said by annotations that a test puts into `spec.podTemplate.annotations`
(see FATES); an inspection Job's pod succeeds and finds SMOLLM2.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from api_server import BINARIES, ApiServer, start_api_server
from operator_process import wait_until
from played_pods import build_stages
from program import running

POD_ADDRESSES = "127.64.0.0/12"
"""Of played pods: on loopback, so that a test's own server on 0.0.0.0 can answer for them."""

_ADDRESSES = (f"--cidr={POD_ADDRESSES}", "--node-ip=127.0.0.1")


@contextmanager
def start_control_plane(
    folder: Path, install: Callable[[ApiServer], object]
) -> Iterator[ApiServer]:
    """Start everything in `folder`; there are no nodes yet.

    What `install` brings is there before the controllers: the garbage collector learns of new kinds
    half a minute later.
    """
    kube = BINARIES / "kube"
    with ExitStack() as stack:
        server = stack.enter_context(start_api_server(folder))
        install(server)
        access = ("--kubeconfig", server.kubeconfig, "--leader-elect=false")
        rates = ("--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0")
        controllers = ("kube-controller-manager", *access, *rates, *_controller_flags(folder))
        stack.enter_context(running(folder, "kube-controller-manager", kube, *controllers))
        scheduler = ("kube-scheduler", *access, *rates)
        stack.enter_context(running(folder, "kube-scheduler", kube, *scheduler))
        stages = folder / "stages.yaml"
        stages.write_text(yaml.safe_dump_all(build_stages()))
        kwok = (BINARIES / "kwok", "--kubeconfig", server.kubeconfig, "--config", stages)
        nodes = ("--manage-all-nodes=true", "--node-lease-duration-seconds=40", *_ADDRESSES)
        stack.enter_context(running(folder, "kwok", *kwok, *nodes))
        wait_until("A default service account", lambda: _has_default_account(server))
        yield server


def add_node(
    server: ApiServer,
    name: str,
    labels: Mapping[str, str] | None = None,
    **resources: str,
) -> None:
    """Create a node with 64 CPUs, 1 TiB and 200 pods; `resources` may say otherwise, or add GPUs.

    A resource is written with "_" for "." and "__" for "/": `nvidia_com__gpu="4"`.
    """
    named = {key.replace("__", "/").replace("_", "."): amount for key, amount in resources.items()}
    offered = {"cpu": "64", "memory": "1Ti", "pods": "200"} | named
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": offered, "capacity": offered},
    }
    status, answer = server.request("POST", "/api/v1/nodes", node)
    if status != 201:
        raise RuntimeError(answer["message"])
    wait_until(f"Node {name} is ready", lambda: _is_ready(server, name))


def remove_node(server: ApiServer, name: str) -> None:
    """Take a node away; its pods go with it."""
    server.kubectl("delete", "node", name, "--wait=false")


def _controller_flags(folder: Path) -> tuple[str, ...]:
    return (
        f"--service-account-private-key-file={folder / 'ca.key'}",
        f"--root-ca-file={folder / 'ca.crt'}",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
    )


def _has_default_account(server: ApiServer) -> bool:
    return server.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200


def _is_ready(server: ApiServer, name: str) -> bool:
    node: dict[str, Any] = server.request("GET", f"/api/v1/nodes/{name}")[1]
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and not node["spec"].get("taints")
