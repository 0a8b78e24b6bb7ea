"""What an operator was seen to ask of the API server, object by object."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from api_server import ApiServer
from chart import Rule

OPERATOR = "system:serviceaccount:forebay-system:forebay-operator"
READS = ("get", "list", "watch")


@dataclass(frozen=True)
class Request:
    """One request that was answered."""

    verb: str
    """As RBAC has it; `create` also for an apply of what was not there."""
    resource: str
    """With its subresource, as in `inferenceservices/status`."""
    group: str
    namespace: str
    name: str
    code: int
    is_applied: bool


def read_audit(server: ApiServer, user: str = OPERATOR) -> list[Request]:
    """All requests of a user so far, in order; those for no resource apart."""
    return [_to_request(one) for one in server.requests_of(user) if "objectRef" in one]


def list_used(server: ApiServer, user: str = OPERATOR) -> set[Rule]:
    """The rights that a user was seen to need; to apply what is not there needs that to patch,
    too."""
    asked = read_audit(server, user)
    applied = {("patch", one.group, one.resource) for one in asked if one.is_applied}
    return applied | {(one.verb, one.group, one.resource) for one in asked}


def count_writes(requests: Iterable[Request]) -> Counter[Request]:
    """How often each write was made, those of the lease apart."""
    return Counter(one for one in requests if one.verb not in READS and one.resource != "leases")


def most_creates(requests: Iterable[Request]) -> int:
    """How often a child was created, of the child for which it was most often; Events have no
    names that could be counted."""
    creates = [one for one in requests if one.verb == "create" and one.resource != "events"]
    return max(Counter((one.resource, one.namespace, one.name) for one in creates).values())


def count_status_writes(requests: Iterable[Request]) -> list[int]:
    """How often each service's status was written, of those for which it was."""
    writes = [one for one in requests if one.resource == "inferenceservices/status"]
    return list(Counter((one.namespace, one.name) for one in writes).values())


def _to_request(entry: dict[str, Any]) -> Request:
    thing, code = entry["objectRef"], entry["responseStatus"].get("code", 0)
    is_applied = entry["verb"] == "patch"
    return Request(
        verb="create" if is_applied and code == 201 else entry["verb"],
        resource="/".join(filter(None, (thing["resource"], thing.get("subresource")))),
        group=thing.get("apiGroup", ""),
        namespace=thing.get("namespace", ""),
        name=thing.get("name", ""),
        code=code,
        is_applied=is_applied,
    )
