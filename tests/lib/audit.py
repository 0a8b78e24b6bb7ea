"""What an operator was seen to ask of the API server, object by object."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

OPERATOR = "system:serviceaccount:forebay-system:forebay-operator"
READS = ("get", "list", "watch")


@dataclass(frozen=True)
class Request:
    """One request that was answered."""

    verb: str
    """As RBAC has it; `create` also for an apply of what was not there."""
    resource: str
    """With its subresource, as in `inferenceservices/status`."""
    namespace: str
    name: str
    code: int


def read_audit(folder: Path, user: str = OPERATOR) -> list[Request]:
    """All requests of a user so far, in order."""
    paths = sorted(folder.glob("audit*.log"), key=lambda path: path.stat().st_mtime)
    lines = (line for path in paths for line in path.read_text().splitlines())
    entries = (json.loads(line) for line in lines if f'"{user}"' in line)
    return [_to_request(one) for one in entries if one["user"]["username"] == user]


def count_writes(requests: Iterable[Request]) -> Counter[Request]:
    """How often each write was made, those of the lease apart."""
    return Counter(one for one in requests if one.verb not in READS and one.resource != "leases")


def most_creates(requests: Iterable[Request]) -> int:
    """How often a child was created, of the child for which it was most often; Events have no
    names that could be counted."""
    creates = [one for one in requests if one.verb == "create" and one.resource != "events"]
    return max(Counter((one.resource, one.namespace, one.name) for one in creates).values())


def most_status_writes(requests: Iterable[Request]) -> int:
    """How often a status was written, of the service for which it was most often."""
    writes = [one for one in requests if one.resource == "inferenceservices/status"]
    return max(Counter((one.namespace, one.name) for one in writes).values())


def _to_request(entry: dict[str, object]) -> Request:
    thing, code = entry.get("objectRef") or {}, entry["responseStatus"].get("code", 0)
    resource = "/".join(filter(None, (thing.get("resource"), thing.get("subresource"))))
    is_new = entry["verb"] == "patch" and code == 201
    verb = "create" if is_new else str(entry["verb"])
    return Request(verb, resource, thing.get("namespace", ""), thing.get("name", ""), code)
