"""What the operator counts of its own work: reconciles, requests, waits, errors and decisions.

Those who do the work call it in one line each; `gauges` adds what is read from the operator's state
when somebody asks, and `exposition` serves both. Planning knows nothing of it.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from forebay_operator.planned import Tally
from forebay_operator.telemetry.heartbeats import Heartbeats

PREFIX = "forebay_operator"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

TALLIES = {
    "scale_decisions": ("The replicas of a service were changed", ("reason",)),
    "drains": ("A pod that was called to go has gone", ("outcome",)),
}
"""What plans count, by name: the sentence that explains it, and its labels."""

NO_CODE = "none"
"""In the place of a status where no answer came."""


class Metrics:
    """One process's counters and histograms, in a registry of its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.watches = Heartbeats(clock)
        """By resource: a watch has delivered, or a full list showed that it had missed nothing."""
        self._clock = clock
        self._tallies = {
            name: self._counter(name, sentence, labels)
            for name, (sentence, labels) in TALLIES.items()
        }
        self._reconciles = self._histogram(
            "reconcile_duration_seconds",
            "Looking at one service once: observe, plan and apply",
            ("outcome",),
        )
        self._waits = self._histogram(
            "queue_wait_seconds", "From when a service was due until a worker took it"
        )
        self._requests = self._counter(
            "api_requests_total",
            "Requests to the API server, kopf's watches apart; code is none without an answer",
            ("verb", "resource", "code"),
        )
        self._request_seconds = self._histogram(
            "api_request_duration_seconds",
            "Requests to the API server, by how long they took",
            ("verb", "resource"),
        )
        self._watch_events = self._counter(
            "watch_events_total", "Objects that a watch delivered", ("resource", "type")
        )
        self._scrapes = self._counter(
            "scrapes_total", "Pods that were asked for their load", ("answered",)
        )
        self._errors = self._counter("errors_total", "What went wrong, by kind", ("kind",))
        build = Gauge("build_info", "1", ("version",), PREFIX, registry=self.registry)
        build.labels(version("forebay")).set(1)
        ProcessCollector(registry=self.registry)

    def count_tallies(self, tallies: Iterable[Tally]) -> None:
        """Count what a decision did; KeyError or ValueError for a name or labels not in TALLIES."""
        for tally in tallies:
            self._tallies[tally.name].labels(**tally.labels).inc()

    def count_error(self, kind: str) -> None:
        """Count one of: refused, api, internal (of a reconcile), list, watch (of the resync)."""
        self._errors.labels(kind).inc()

    def count_scrape(self, has_answered: bool) -> None:
        """Count a pod that was asked."""
        self._scrapes.labels(str(has_answered).lower()).inc()

    def count_watch_event(self, resource: str, event_type: str) -> None:
        """Count an object that a watch delivered; one of its first list has the type LISTED."""
        self.watches.beat(resource)
        self._watch_events.labels(resource, event_type).inc()

    def observe_wait(self, seconds: float) -> None:
        """Note how long a key was due before its turn came."""
        self._waits.observe(seconds)

    def observe_request(self, method: str, path: str, status: int | None, seconds: float) -> None:
        """Note one answered or failed request."""
        verb, resource = name_request(method, path)
        self._requests.labels(verb, resource, str(status or NO_CODE)).inc()
        self._request_seconds.labels(verb, resource).observe(seconds)

    @contextmanager
    def time_reconcile(self) -> Iterator["Outcome"]:
        """Time the block; its outcome is what the block has set in the end."""
        outcome, began_at = Outcome(), self._clock()
        try:
            yield outcome
        finally:
            self._reconciles.labels(outcome.name).observe(self._clock() - began_at)

    def _counter(self, name: str, sentence: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, sentence, labels, PREFIX, registry=self.registry)

    def _histogram(self, name: str, sentence: str, labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(name, sentence, labels, PREFIX, registry=self.registry, buckets=SECONDS)


class Outcome:
    """How looking at a service ended."""

    name = "interrupted"


VERBS = {"PATCH": "patch", "POST": "create", "PUT": "update", "DELETE": "delete"}


def name_request(method: str, path: str) -> tuple[str, str]:
    """A request's verb and resource, as RBAC names them: `inferenceservices/status`."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    verb = VERBS.get(method) or ("get" if len(parts) > 1 else "list")
    return verb, "/".join(parts[::2])
