"""How pods end: a watch that keeps the last state of every pod that went while it was open."""

import json
import subprocess
import threading
from datetime import datetime, timedelta
from types import TracebackType

from cluster_api import Object, wait_until
from served import ServedModel


class Departures:
    """Watches a service's pods from `with` to its end."""

    def __init__(self, served: ServedModel) -> None:
        where = ("--namespace", served.namespace.name, "--selector", served.serving)
        output = ("--output-watch-events", "--output", 'jsonpath={}{"\\n"}')
        kubectl = served.namespace.cluster_kubectl
        self._command = kubectl.command("get", "pods", "--watch", *where, *output)
        self._known: set[str] = set()
        self._last_states: dict[str, Object] = {}

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

    @property
    def names(self) -> set[str]:
        """The pods that have gone."""
        return set(self._last_states)

    def wait_for(self, num_pods: int, give_up_seconds: float) -> list[Object]:
        """Wait until so many pods have gone, and return their last states."""
        what = f"{num_pods} pods are gone"
        wait_until(lambda: self.names, lambda gone: len(gone) >= num_pods, what, give_up_seconds)
        return list(self._last_states.values())

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                name = event["object"]["metadata"]["name"]
                self._known.add(name)
                if event["type"] == "DELETED":
                    self._last_states[name] = event["object"]


def exit_of(pod: Object) -> tuple[int, timedelta]:
    """Return a gone pod's exit status, and how long after the call for its deletion it ended."""
    metadata = pod["metadata"]
    grace = timedelta(seconds=metadata["deletionGracePeriodSeconds"])
    called = datetime.fromisoformat(metadata["deletionTimestamp"]) - grace
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended["exitCode"], datetime.fromisoformat(ended["finishedAt"]) - called
