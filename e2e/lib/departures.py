"""How pods end: a watch that remembers every pod that went while it was open."""

import json
import subprocess
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType

from cluster_api import Object, wait_until
from served import ServedModel


@dataclass(frozen=True)
class Departure:
    """One pod that went."""

    pod: str
    exit_code: int
    took: timedelta
    """From the call for its deletion to the end of its process."""


class Departures:
    """Watches a service's pods from `with` to its end."""

    def __init__(self, served: ServedModel) -> None:
        where = ("--namespace", served.namespace.name, "--selector", served.serving)
        output = ("--output-watch-events", "--output", 'jsonpath={}{"\\n"}')
        kubectl = served.namespace.cluster_kubectl
        self._command = kubectl.command("get", "pods", "--watch", *where, *output)
        self._known: set[str] = set()
        self._called: dict[str, datetime] = {}
        self._departures: list[Departure] = []

    def __enter__(self) -> "Departures":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        wait_until(lambda: self._known, bool, "the watch sees the pods", 60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()

    def wait_for(self, num_pods: int, give_up_seconds: float) -> list[Departure]:
        """Wait until so many pods have gone, and return how each went."""
        what = f"{num_pods} pods are gone"
        wait_until(
            lambda: self._departures, lambda gone: len(gone) >= num_pods, what, give_up_seconds
        )
        return list(self._departures)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                self._take(event["type"], event["object"])

    def _take(self, event_type: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        self._known.add(name)
        if "deletionTimestamp" in pod["metadata"]:
            # The last deletion, by the kubelet, overwrites what the first one said.
            self._called.setdefault(name, read_call(pod))
        if event_type == "DELETED":
            end = pod["status"]["containerStatuses"][0]["state"]["terminated"]
            took = datetime.fromisoformat(end["finishedAt"]) - self._called[name]
            self._departures.append(Departure(name, end["exitCode"], took))


def read_call(pod: Object) -> datetime:
    """Return when a pod that is being deleted was called to go."""
    grace = timedelta(seconds=pod["metadata"]["deletionGracePeriodSeconds"])
    return datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]) - grace
