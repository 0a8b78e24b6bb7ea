"""The API server itself, over HTTP.

Everything that writes goes through `KubernetesCluster.permit` first, which raises once the lease is
lost, and says for how long a write may go on.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from forebay_operator.cluster import ApiError, Keep, Listing, whole
from forebay_operator.kinds import FIELD_MANAGER, LEASE, Kind, selector_of
from forebay_operator.observed import Object

log = logging.getLogger(__name__)

MANAGER = {"fieldManager": FIELD_MANAGER}
READ_TIMEOUT_SECONDS = 30.0
LEASE_TIMEOUT_SECONDS = 5.0
"""Short enough for a second try, over a new connection, before the lease is lost."""
LONGEST_QUIET_SECONDS = 30.0
"""Whatever a busy API server asks for: nobody shall wait for hours because of one bad header."""
PAGE_SIZE = 100
"""A page is held whole while it is read, beside those of all watches that begin."""
MOST_LISTS = 3
"""How often a list begins anew because the one before became too old to be continued."""

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"


Measure = Callable[[str, str, int | None, float], None]
"""Told of each request: method, path, status (None: no answer) and seconds."""


class KubernetesCluster:
    """The Cluster of `kubernetes.aio`, with raw dictionaries in and out."""

    def __init__(
        self, configuration: Configuration, load: Callable[[], Awaitable[Configuration]]
    ) -> None:
        # No proxy and no netrc is looked for, as kopf does not either: that is a thread a request.
        configuration.client_session_kwargs = {"trust_env": False}
        self._client = ApiClient(configuration)
        self._load = load
        self.permit: Callable[[], float] = lambda: READ_TIMEOUT_SECONDS
        """Called before every write but the lease's own: the seconds that it may take."""
        self._quiet_until = float("-inf")
        """Monotonic time before which a busy API server wants to hear nothing."""
        self.measure: Measure = lambda method, path, status, seconds: None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read one object; None where there is none."""
        try:
            return await self._send(kind, "GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None, field_selector: str = "", keep: Keep = whole
    ) -> Listing:
        """Read all objects of a kind, page by page; no more than one page is ever held whole."""
        query = {"limit": str(PAGE_SIZE), "labelSelector": selector_of(kind)}
        query |= {"fieldSelector": field_selector}
        for _ in range(MOST_LISTS - 1):
            try:
                return await self._list(kind, namespace, query, keep)
            except ApiError as error:
                if error.status != 410:  # its pages are too old by now
                    raise
        return await self._list(kind, namespace, query, keep)

    async def _list(
        self, kind: Kind, namespace: str | None, asked: Mapping[str, str], keep: Keep
    ) -> Listing:
        query = dict(asked)
        objects: list[Object] = []
        while True:
            page = await self._send(kind, "GET", kind.path(namespace), query)
            for item in page.get("items") or ():
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.name)
                objects.append(keep(item))
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return Listing(kind, tuple(objects), int(metadata["resourceVersion"]))
            query["continue"] = metadata["continue"]

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """Server-side apply, as field manager `forebay`, by force."""
        metadata = manifest["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        path += f"/{subresource}" if subresource else ""
        query = {**MANAGER, "force": "true"}
        return await self._send(kind, "PATCH", path, query, manifest, APPLY)

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Merge a patch into an object that exists."""
        return await self._send(kind, "PATCH", kind.path(namespace, name), MANAGER, patch, MERGE)

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object."""
        path = kind.path(manifest["metadata"]["namespace"])
        return await self._send(kind, "POST", path, MANAGER, manifest)

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        """Replace an object whose resource version is still the manifest's."""
        path = kind.path(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        return await self._send(kind, "PUT", path, MANAGER, manifest)

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, version: str = ""
    ) -> None:
        """Delete an object if it is still the one meant; its children go in the background."""
        state = {"uid": uid} | ({"resourceVersion": version} if version else {})
        options = {"preconditions": state, "propagationPolicy": "Background"}
        try:
            await self._send(kind, "DELETE", kind.path(namespace, name), body=options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _send(
        self,
        kind: Kind,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = JSON,
    ) -> dict[str, Any]:
        given = urlencode({name: text for name, text in (query or {}).items() if text})
        address = path + (f"?{given}" if given else "")
        headers = {"Accept": JSON, "Content-Type": content, "User-Agent": "forebay-operator"}
        await self._wait_for_quiet(kind)
        try:
            return await self._ask(kind, method, address, headers, body)
        except ApiError as error:
            if error.retry_after_seconds:
                self._keep_quiet(error)
            if error.status != 401:
                raise
        await self._renew_token()
        return await self._ask(kind, method, address, headers, body)

    async def _ask(
        self, kind: Kind, method: str, address: str, headers: dict[str, str], body: Object | None
    ) -> dict[str, Any]:
        """Send one request; whether it may be sent is asked last, for all before takes time."""
        configuration = self._client.configuration
        token = await self._read_token()
        sent = headers | ({"Authorization": token} if token else {})
        timeout = aiohttp.ClientTimeout(total=self._seconds_for(kind, method))
        status, began_at = None, time.monotonic()
        try:
            answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, configuration.host + address, sent, body, _request_timeout=timeout
            )
            data = await answer.read()
            status = answer.status
        finally:
            path = address.partition("?")[0]
            self.measure(method, path, status, time.monotonic() - began_at)
        return _decode(status, answer.headers, data)

    def _seconds_for(self, kind: Kind, method: str) -> float:
        if kind is LEASE:
            return LEASE_TIMEOUT_SECONDS
        return READ_TIMEOUT_SECONDS if method == "GET" else self.permit()

    async def _wait_for_quiet(self, kind: Kind) -> None:
        """All requests respect what one was told; but a lease that is not renewed is lost."""
        left = self._quiet_until - time.monotonic()
        if left > 0 and kind is not LEASE:
            await asyncio.sleep(left)

    def _keep_quiet(self, error: ApiError) -> None:
        seconds = min(error.retry_after_seconds, LONGEST_QUIET_SECONDS)
        self._quiet_until = max(self._quiet_until, time.monotonic() + seconds)
        log.info("API server asked for a pause seconds=%.0f error=%s", seconds, error)

    async def _read_token(self) -> str | None:
        configuration = self._client.configuration
        try:
            token = await configuration.get_api_key_with_prefix("BearerToken", "authorization")
        except ConfigException as error:
            raise ApiError(401, f"The token cannot be read: {error}") from error
        return str(token) if token else None

    async def _renew_token(self) -> None:
        """Read the token anew: the file may hold a newer one, whatever a clock made of its age."""
        try:
            configuration = await self._load()
        except ConfigException as error:
            raise ApiError(401, f"The credentials cannot be read: {error}") from error
        self._client.configuration.api_key = configuration.api_key
        self._client.configuration.refresh_api_key_hook = configuration.refresh_api_key_hook


def _decode(status: int, headers: Mapping[str, str], data: bytes) -> dict[str, Any]:
    """The object that was answered; ApiError for a refusal, and for what no API server says."""
    try:
        decoded: dict[str, Any] = json.loads(data) if data else {}
    except ValueError:
        text = data[:300].decode(errors="replace")
        raise ApiError(status if status >= 400 else 502, f"This is no JSON: {text}") from None
    if status >= 400:
        details = decoded.get("details")
        message = decoded.get("message") or "no reason given"
        raise ApiError(status, message, details, _retry_after(headers))
    return decoded


def _retry_after(headers: Mapping[str, str]) -> float:
    """In seconds; Kubernetes writes no dates there."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
