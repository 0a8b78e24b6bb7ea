"""The seam to the API server: the few requests the operator makes, and nothing of what they are
for.

Everything that writes goes through `KubernetesCluster.permit` first, which raises once the lease is
lost. Tests put a fake in its place (`tests/lib/fake_cluster.py`).
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from forebay_operator.kinds import LEASE, Kind, selector_of
from forebay_operator.observed import Object

MANAGER = {"fieldManager": "forebay"}
READ_TIMEOUT_SECONDS = 30.0
WRITE_TIMEOUT_SECONDS = 4.0
"""Shorter than the time between a lease's last renewal that counts and its expiry."""
PAGE_SIZE = 500

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"


Measure = Callable[[str, str, int | None, float], None]
"""Told of each request: method, path, status (None: no answer) and seconds."""


class ApiError(Exception):
    """The API server refused a request; `message` is its own sentence."""

    def __init__(self, status: int, message: str, details: Object | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.details = details or {}

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether the namespace is being deleted, so that nothing can be created in it."""
        causes = self.details.get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


@dataclass(frozen=True)
class Listing:
    """All objects of a kind at one resource version."""

    kind: Kind
    objects: tuple[Object, ...]
    resource_version: int


class Cluster(Protocol):
    """What the operator asks of an API server. Every method raises ApiError when refused."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read one object; None where there is none."""

    async def list(self, kind: Kind, namespace: str | None, field_selector: str = "") -> Listing:
        """Read all objects of a kind, those of CHILDREN by their label."""

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """Server-side apply; a `metadata.uid` in the manifest guards against a newer namesake."""

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Merge a patch into an object that exists."""

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object."""

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        """Replace an object whose resource version is still the manifest's."""

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete an object if it still has this uid."""


class KubernetesCluster:
    """The Cluster of `kubernetes.aio`, with raw dictionaries in and out."""

    def __init__(self, configuration: Configuration) -> None:
        self._client = ApiClient(configuration)
        self.permit: Callable[[], None] = lambda: None
        """Called before every write but the lease's own."""
        self.measure: Measure = lambda method, path, status, seconds: None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read one object; None where there is none."""
        try:
            return await self._send("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: Kind, namespace: str | None, field_selector: str = "") -> Listing:
        """Read all objects of a kind, page by page."""
        query = {"limit": str(PAGE_SIZE), "labelSelector": selector_of(kind)}
        query |= {"fieldSelector": field_selector}
        objects: list[Object] = []
        while True:
            page = await self._send("GET", kind.path(namespace), query)
            for item in page.get("items") or ():
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.name)
                objects.append(item)
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return Listing(kind, tuple(objects), int(metadata["resourceVersion"]))
            query["continue"] = metadata["continue"]

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """Server-side apply, as field manager `forebay`, by force."""
        metadata = manifest["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        path += f"/{subresource}" if subresource else ""
        self._ask(kind)
        query = {**MANAGER, "force": "true"}
        return await self._send("PATCH", path, query, manifest, APPLY)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Merge a patch into an object that exists."""
        self._ask(kind)
        return await self._send("PATCH", kind.path(namespace, name), MANAGER, patch, MERGE)

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object."""
        self._ask(kind)
        path = kind.path(manifest["metadata"]["namespace"])
        return await self._send("POST", path, MANAGER, manifest)

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        """Replace an object whose resource version is still the manifest's."""
        self._ask(kind)
        path = kind.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return await self._send("PUT", path, MANAGER, manifest)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete an object if it still has this uid; its own children go in the background."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        self._ask(kind)
        try:
            await self._send("DELETE", kind.path(namespace, name), body=options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def _ask(self, kind: Kind) -> None:
        if kind is not LEASE:
            self.permit()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = JSON,
    ) -> dict[str, Any]:
        headers = {"Accept": JSON, "Content-Type": content, "User-Agent": "forebay-operator"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        given = urlencode({name: text for name, text in (query or {}).items() if text})
        address = self._client.configuration.host + path + (f"?{given}" if given else "")
        seconds = READ_TIMEOUT_SECONDS if method == "GET" else WRITE_TIMEOUT_SECONDS
        timeout = aiohttp.ClientTimeout(total=seconds)
        status, began_at = None, time.monotonic()
        try:
            answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, address, headers, body, _request_timeout=timeout
            )
            data = await answer.read()
            status = answer.status
        finally:
            self.measure(method, path, status, time.monotonic() - began_at)
        return _decode(status, data)


def _decode(status: int, data: bytes) -> dict[str, Any]:
    try:
        decoded: dict[str, Any] = json.loads(data) if data else {}
    except ValueError:
        decoded = {"message": data[:300].decode(errors="replace")}
    if status >= 400:
        raise ApiError(status, decoded.get("message") or "no reason given", decoded.get("details"))
    return decoded
