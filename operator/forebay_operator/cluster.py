"""The seam to the API server: the few requests the operator makes, and nothing of what they are
for.

`kubernetes_cluster` makes them; tests put a fake in its place (`tests/lib/fake_cluster.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from forebay_operator.kinds import Kind
from forebay_operator.observed import Object


class ApiError(Exception):
    """The API server refused a request; `message` is its own sentence."""

    def __init__(
        self,
        status: int,
        message: str,
        details: Object | None = None,
        retry_after_seconds: float = 0.0,
    ) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.details = details or {}
        self.retry_after_seconds = retry_after_seconds
        """For how long the API server wants to be left alone; 0 where it did not say."""

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether the namespace is being deleted, so that nothing can be created in it."""
        causes = self.details.get("causes") or ()
        return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


FAILURES = (ApiError, aiohttp.ClientError, TimeoutError, OSError)
"""How a request fails that may succeed the next time."""


@dataclass(frozen=True)
class Listing:
    """All objects of a kind at one resource version."""

    kind: Kind
    objects: tuple[Object, ...]
    resource_version: int


Keep = Callable[[Object], Object]


def whole(item: Object) -> Object:
    """Keep an object as it came."""
    return item


def nothing(_: Object) -> Object:
    """Keep nothing: whether a kind may be read is all that is asked."""
    return {}


class Cluster(Protocol):
    """What the operator asks of an API server. Every method raises ApiError when refused."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read one object; None where there is none."""

    async def list(
        self, kind: Kind, namespace: str | None, field_selector: str = "", keep: Keep = whole
    ) -> Listing:
        """Read all objects of a kind, those of CHILDREN by their label, and keep what `keep` makes
        of each."""

    async def apply(self, kind: Kind, manifest: Object, subresource: str = "") -> Object:
        """Server-side apply; a `metadata.uid` in the manifest guards against a newer namesake."""

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """Merge a patch into an object that exists."""

    async def create(self, kind: Kind, manifest: Object) -> Object:
        """Create an object."""

    async def replace(self, kind: Kind, manifest: Object) -> Object:
        """Replace an object whose resource version is still the manifest's."""

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str, version: str = ""
    ) -> None:
        """Delete an object if it still has this uid, and this resource version if one is given."""
