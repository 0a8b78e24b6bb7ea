"""Record every state that objects of one namespace pass through, as a watch delivers them.

Resource versions order what happened to objects of all kinds: they are one counter.
"""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from api_server import ApiServer, trust

Object = dict[str, Any]

WATCH_SECONDS = 1
"""A watch ends after it and goes on from where it was: so a recording can be stopped."""


@dataclass
class Recording:
    """The states of the objects at one path, in their order."""

    server: ApiServer
    path: str
    states: list[Object] = field(default_factory=list)
    """A deleted object is the last one with `deleted` beside its metadata."""
    stopped: Event = field(default_factory=Event)

    def since(self, version: int) -> list[Object]:
        """The states that came after a version."""
        return [one for one in self.states if version_of(one) > version]

    def alive_at(self, version: int) -> list[Object]:
        """The objects that were there at a version, as they were then."""
        last = {one["metadata"]["uid"]: one for one in self.states if version_of(one) <= version}
        return [one for one in last.values() if not one.get("deleted")]

    def run(self, version: int) -> None:
        """Watch from a version on until stopped."""
        while not self.stopped.is_set():
            query = f"watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
            request = urllib.request.Request(f"{self.server.url}{self.path}?{query}")
            with urllib.request.urlopen(request, context=trust(self.server.folder)) as lines:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(event["object"]["message"])
                    is_gone = event["type"] == "DELETED"
                    self.states.append(event["object"] | ({"deleted": True} if is_gone else {}))
                    version = version_of(event["object"])


@contextmanager
def record(server: ApiServer, *paths: str) -> Iterator[list[Recording]]:
    """Record what happens at each path while the block runs."""
    recordings = [Recording(server, path) for path in paths]
    with ExitStack() as stack:
        for one in recordings:
            version = int(server.request("GET", one.path)[1]["metadata"]["resourceVersion"])
            thread = Thread(target=one.run, args=(version,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(one.stopped.set)
        yield recordings


def version_of(item: Object) -> int:
    """When a state began."""
    return int(item["metadata"]["resourceVersion"])
