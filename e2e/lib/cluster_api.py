"""The Kubernetes API as the tests read it: plain JSON over one connection, cheap enough to poll.

What a user would do with kubectl (apply, scale, delete) the tests do with kubectl; this looks.
"""

import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

Object = dict[str, Any]
Seen = TypeVar("Seen")

PREFIXES = {
    "configmaps": "/api/v1",
    "controllerrevisions": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "events": "/api/v1",
    "inferenceservices": "/apis/forebay.dev/v1alpha1",
    "jobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "persistentvolumeclaims": "/api/v1",
    "pods": "/api/v1",
    "replicasets": "/apis/apps/v1",
    "serviceaccounts": "/api/v1",
    "services": "/api/v1",
}


class ClusterApi:
    """Reads objects, and writes the few things that kubectl cannot."""

    def __init__(self, kubeconfig: Path) -> None:
        credentials = Configuration()
        load_kube_config(str(kubeconfig), client_configuration=credentials)  # type: ignore[no-untyped-call]
        trust = ssl.create_default_context(cafile=credentials.ssl_ca_cert)
        if credentials.cert_file:
            trust.load_cert_chain(credentials.cert_file, credentials.key_file)
        token = credentials.get_api_key_with_prefix("authorization")
        self._http = httpx.Client(
            base_url=credentials.host,
            headers={"Authorization": token} if token else {},
            verify=trust,
            timeout=30,
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str) -> Object | None:
        """Return the object at a path, or None where there is none."""
        response = self._http.get(path)
        return None if response.status_code == 404 else _json(response)

    def get_text(self, path: str) -> str:
        """Return what a proxied or log path answers."""
        return _check(self._http.get(path)).text

    def list(self, path: str, label_selector: str = "") -> list[Object]:
        """Return the objects under a path."""
        found = _json(self._http.get(path, params={"labelSelector": label_selector}))
        items: list[Object] = found["items"]
        return items

    def merge(self, path: str, change: Object) -> Object:
        """Merge a change into the object at a path."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return _json(self._http.patch(path, content=json.dumps(change), headers=headers))

    def delete(self, path: str) -> None:
        """Ask for an object's deletion; one that is gone already is fine."""
        response = self._http.delete(path)
        if response.status_code != 404:
            _check(response)


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of one object, or of all of a kind, in a namespace; `kind` is the plural."""
    path = f"{PREFIXES[kind]}/namespaces/{namespace}/{kind}"
    return f"{path}/{name}" if name else path


def wait_until(
    read: Callable[[], Seen], accept: Callable[[Seen], bool], what: str, give_up_seconds: float
) -> Seen:
    """Read until `accept` likes it; the bound is for giving up, and says nothing about speed.

    Raises: AssertionError that shows what was read last.
    """
    deadline = time.monotonic() + give_up_seconds
    while not accept(seen := read()):
        if time.monotonic() > deadline:
            shown = json.dumps(_without_bookkeeping(seen), indent=1, default=str)
            raise AssertionError(f"{what}: not within {give_up_seconds:.0f} s; last seen {shown}")
        time.sleep(0.25)
    return seen


def _without_bookkeeping(seen: Any) -> Any:
    """Leave out what hides an object from its reader."""
    if isinstance(seen, list):
        return [_without_bookkeeping(each) for each in seen]
    if not isinstance(seen, dict) or "metadata" not in seen:
        return seen
    hidden = ("managedFields", "annotations")
    metadata = {key: value for key, value in seen["metadata"].items() if key not in hidden}
    return seen | {"metadata": metadata}


def _check(response: httpx.Response) -> httpx.Response:
    if response.is_error:
        raise httpx.HTTPStatusError(
            f"{response.status_code} {response.text}", request=response.request, response=response
        )
    return response


def _json(response: httpx.Response) -> Object:
    found: Object = _check(response).json()
    return found
