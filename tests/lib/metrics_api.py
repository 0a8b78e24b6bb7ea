"""A metrics API as Prometheus' or KEDA's adapter serves it: one number under
`external.metrics.k8s.io`, which a HorizontalPodAutoscaler reads through the API server.

The API server reaches it as a Service of type ExternalName, the one kind that may lead to loopback.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any

from api_server import ApiServer
from json_handler import answer_json
from operator_process import wait_until

GROUP = "external.metrics.k8s.io"
ROOT = f"/apis/{GROUP}/v1beta1"
API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.{GROUP}"
METRIC = "requests-waiting"


class MetricsApi:
    """What every metric of every namespace is now."""

    def __init__(self) -> None:
        self.value = 0

    def answer(self, path: str) -> dict[str, Any]:
        """The list of kinds, or the metric's one value."""
        if path.rstrip("/") == ROOT:
            kind = {"name": METRIC, "namespaced": True, "kind": "ExternalMetricValueList"}
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/v1beta1",
                "resources": [{**kind, "singularName": "", "verbs": ["get"]}],
            }
        measured = {"timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        value = {"metricName": METRIC, "metricLabels": {}, "value": str(self.value), **measured}
        return {
            "kind": "ExternalMetricValueList",
            "apiVersion": f"{GROUP}/v1beta1",
            "metadata": {},
            "items": [value],
        }


@contextmanager
def serve_metrics(server: ApiServer) -> Iterator[MetricsApi]:
    """Serve on loopback while the block runs, and have the API server know."""
    metrics = MetricsApi()
    web = ThreadingHTTPServer(("127.0.0.1", 0), answer_json(metrics.answer))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server.folder / "server.crt", server.folder / "server.key")
    web.socket = context.wrap_socket(web.socket, server_side=True)
    Thread(target=web.serve_forever, args=(0.05,), daemon=True).start()
    try:
        _register(server, web.server_port)
        yield metrics
    finally:
        # A group that nobody serves would keep namespaces from being deleted.
        server.request("DELETE", API_SERVICE)
        server.kubectl("delete", "service", "metrics", "-n", "kube-system")
        web.shutdown()
        web.server_close()


def _register(server: ApiServer, port: int) -> None:
    command = ("create", "service", "externalname", "metrics", "--external-name=localhost")
    server.kubectl(*command, "-n", "kube-system")
    reference = {"namespace": "kube-system", "name": "metrics", "port": port}
    spec = {
        "group": GROUP,
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": reference,
        "insecureSkipTLSVerify": True,
    }
    manifest = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{GROUP}"},
        "spec": spec,
    }
    path, _, _ = API_SERVICE.rpartition("/")
    status, answer = server.request("POST", path, manifest)
    if status != 201:
        raise RuntimeError(answer["message"])
    wait_until("The metrics API is available", lambda: _is_available(server))


def _is_available(server: ApiServer) -> bool:
    conditions = (server.request("GET", API_SERVICE)[1].get("status") or {}).get("conditions")
    return any(one["type"] == "Available" and one["status"] == "True" for one in conditions or ())
