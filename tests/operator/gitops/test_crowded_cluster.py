"""9,000 Secrets in the cluster kill the operator, users of others report: this one never asks for
them, and of pods and other kinds it asks for its own alone."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from api_server import ApiServer, trust
from operator_process import run_operator, wait_until
from place import build_service
from played_node import PlayedNode
from process_usage import read_usage

pytestmark = pytest.mark.component

NUM_SECRETS = 300
NUM_OTHERS = 300
MOST_BYTES = 256 * 2**20
"""What the chart grants."""
USER = "system:serviceaccount:forebay-system:forebay-operator"
CROWD: dict[str, tuple[int, dict[str, Any]]] = {
    "secrets": (NUM_SECRETS, {"data": {"blob": "QUJD" * 1_000}}),
    "configmaps": (NUM_OTHERS, {"data": {"blob": "ABCD" * 1_000}}),
    "pods": (NUM_OTHERS, {"spec": {"containers": [{"name": "c", "image": "i"}]}}),
}
OPEN = {"inferenceservices", "vramquotas", "nodes", "resourceslices", "leases", "events"}
"""What is listed and watched without a label: its own kinds, and few or short-lived objects."""


def test_other_peoples_objects_are_never_asked_for(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    for plural, (number, body) in CROWD.items():
        create_many(api_server, f"/api/v1/namespaces/{namespace}/{plural}", number, body)
    token = api_server.kubectl("create", "token", "forebay-operator", "-n", "forebay-system")
    kubeconfig = api_server.kubeconfig_with_token("crowded", token.stdout.strip())
    node = PlayedNode(api_server, namespace)
    with run_operator(kubeconfig, tmp_path / "log") as operator:
        operator.wait_for("Lease was acquired")
        node.create("inferenceservices", build_service())
        wait_until("It works", lambda: node.list("jobs"))
        peak_bytes = read_usage(operator.process.pid).peak_bytes
    print(f"Beside {NUM_SECRETS} Secrets the operator took {peak_bytes / 2**20:.0f} MiB")
    assert peak_bytes < MOST_BYTES
    asked = [one for one in api_server.requests_of(USER) if "objectRef" in one]
    assert {"secrets", "configmaps"}.isdisjoint(one["objectRef"]["resource"] for one in asked)
    reads = [one for one in asked if one["verb"] in ("list", "watch")]
    assert "pods" in {one["objectRef"]["resource"] for one in reads}
    assert [one["requestURI"] for one in reads if not is_of_our_own(one)] == []


def is_of_our_own(entry: dict[str, Any]) -> bool:
    labels = parse_qs(urlsplit(entry["requestURI"]).query).get("labelSelector", [])
    is_selected = labels == ["app.kubernetes.io/managed-by=forebay"]
    return is_selected or entry["objectRef"]["resource"] in OPEN


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_it_may_not_even_read_secrets(api_server: ApiServer, verb: str) -> None:
    asked = api_server.kubectl("auth", "can-i", verb, "secrets", "-A", f"--as={USER}", check=False)
    assert asked.stdout.strip() == "no"


def create_many(server: ApiServer, path: str, number: int, body: dict[str, Any]) -> None:
    """Create objects by connections that stay open."""

    def create_some(start: int) -> None:
        host = urlsplit(server.url).netloc
        connection = http.client.HTTPSConnection(host, context=trust(server.folder))
        for one in range(start, number, NUM_WRITERS):
            text = json.dumps({"metadata": {"name": f"other-{one}"}, **body})
            connection.request("POST", path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 201:
                raise RuntimeError(f"{path}: {answer.status}")
        connection.close()

    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        list(pool.map(create_some, range(NUM_WRITERS)))


NUM_WRITERS = 4
