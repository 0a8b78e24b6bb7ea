"""How this machine reaches a Service: by its cluster IP where that is routed, else by a node.

On the local cluster kube-proxy runs on this host; on kind only the node's own address is reachable.
Either way kube-proxy picks a pod for each connection, as it does for users inside the cluster.
"""

import socket
from functools import cache
from urllib.parse import urlsplit

from cluster_api import ClusterApi, Object, path_of, wait_until
from namespace import Namespace


def reach(namespace: Namespace, service_name: str) -> str:
    """Return the base URL of a Service's first port, once the Service is there."""
    service = namespace.wait_for("services", service_name, _has_address, "an address")
    if is_routed(namespace.api):
        return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
    return _reach_by_node(namespace, service)


def wait_turned_away(base_url: str) -> None:
    """Wait until callers of a Service without pods are refused.

    Until kube-proxy knows a new cluster IP, its callers are led out of the cluster.
    """
    url = urlsplit(base_url)

    def is_refused() -> bool:
        try:
            socket.create_connection((url.hostname, url.port), timeout=1).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False

    wait_until(is_refused, bool, f"{base_url} refuses", 30)


@cache
def is_routed(api: ClusterApi) -> bool:
    """Say whether cluster IPs are reachable from here, by the one that every cluster has."""
    service = api.get(path_of("services", "default", "kubernetes"))
    assert service is not None
    address = (service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"])
    try:
        socket.create_connection(address, timeout=3).close()
    except OSError:
        return False
    return True


def _reach_by_node(namespace: Namespace, service: Object) -> str:
    twin = build_twin(service)
    namespace.apply(twin)
    made = namespace.wait_for("services", twin["metadata"]["name"], _has_node_port, "a port")
    nodes = wait_until(lambda: namespace.api.list("/api/v1/nodes"), bool, "a node", 10)
    addresses = {each["type"]: each["address"] for each in nodes[0]["status"]["addresses"]}
    return f"http://{addresses['InternalIP']}:{made['spec']['ports'][0]['nodePort']}"


def build_twin(service: Object) -> Object:
    """Return a Service to the same pods, with a port on every node."""
    spec = service["spec"]
    port = {"port": spec["ports"][0]["port"], "targetPort": spec["ports"][0]["targetPort"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{service['metadata']['name']}-by-node"},
        "spec": {
            "type": "NodePort",
            "selector": spec["selector"],
            "ports": [port],
            "publishNotReadyAddresses": spec.get("publishNotReadyAddresses", False),
        },
    }


def _has_address(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP"))


def _has_node_port(service: Object) -> bool:
    return bool(service["spec"]["ports"][0].get("nodePort"))
