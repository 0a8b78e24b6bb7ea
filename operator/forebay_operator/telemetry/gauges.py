"""Metrics that are read from the operator's state when somebody asks: nothing has to be kept up to
date, and what is gone is gone from them at once.

What only the leader knows is told by the leader alone, so that sums over all operators are right.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from forebay_operator.kinds import DEPLOYMENT, INFERENCE_SERVICE, POD
from forebay_operator.lease import LeaseHolder
from forebay_operator.objects import uid_of
from forebay_operator.observed import Key, Object, PodLoad
from forebay_operator.store import Store
from forebay_operator.telemetry.heartbeats import Heartbeats
from forebay_operator.telemetry.metrics import PREFIX
from forebay_operator.workqueue import WorkQueue

SERVICE_LABELS = ("namespace", "name")
PER_SERVICE = {
    "service_replicas_wanted": "Replicas that the Deployment is asked for",
    "service_replicas_ready": "Replicas that serve",
    "service_requests_running": "Requests in work, over the pods that answered",
    "service_requests_waiting": "Requests that wait, over the pods that answered",
    "service_pods_silent": "Pods that did not answer when they were asked for their load",
    "service_kv_cache_usage": "How full the KV caches are, mean of the pods that answered, 0 to 1",
    "service_gpu_utilization": "How busy the GPUs are, mean of the pods that know it, 0 to 1",
}


@dataclass(frozen=True, eq=False)
class Gauges(Collector):
    """Reads what the operator is made of; runs on its event loop, where nothing else changes it."""

    store: Store
    queue: WorkQueue
    lease: LeaseHolder
    watches: Heartbeats
    loads: Mapping[str, PodLoad]

    def collect(self) -> Iterator[Metric]:
        """All families, with their samples of this moment."""
        yield _gauge("leader", "1 while this process holds the lease", self.lease.is_held)
        yield _gauge("queue_depth", "Services that are due", self.queue.depth)
        yield _gauge(
            "queue_oldest_seconds", "For how long the oldest is due", self.queue.oldest_seconds
        )
        yield _gauge(
            "longest_work_seconds",
            "For how long a worker is at one service",
            self.queue.longest_work_seconds,
        )
        yield self._collect_ages()
        if self.lease.is_held:
            yield self._collect_states()
            yield from self._collect_services()

    def _collect_ages(self) -> Metric:
        family = GaugeMetricFamily(
            f"{PREFIX}_watch_age_seconds",
            "Since a watch delivered something, or a full list showed that it had missed nothing",
            labels=("resource",),
        )
        for resource, age in self.watches.ages().items():
            family.add_metric((resource,), age)
        return family

    def _collect_states(self) -> Metric:
        family = GaugeMetricFamily(
            f"{PREFIX}_services",
            "InferenceServices by their condition Ready",
            labels=("ready", "reason"),
        )
        services = (self._service(key) for key in self.store.keys())
        for state, count in Counter(map(_state, services)).items():
            family.add_metric(state, count)
        return family

    def _collect_services(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"{PREFIX}_{name}", sentence, labels=SERVICE_LABELS)
            for name, sentence in PER_SERVICE.items()
        }
        for key in self.store.keys():
            for name, number in self._numbers(key).items():
                if number is not None:
                    families[name].add_metric((key.namespace, key.name), number)
        yield from families.values()

    def _numbers(self, key: Key) -> dict[str, float | None]:
        """None where nobody knows."""
        deployment = self.store.find(DEPLOYMENT, key.namespace, key.name) or {}
        status = self._service(key).get("status") or {}
        uids = map(uid_of, self.store.children(key, POD))
        loads = [self.loads[uid] for uid in uids if uid in self.loads]
        return {
            "service_replicas_wanted": (deployment.get("spec") or {}).get("replicas", 0),
            "service_replicas_ready": status.get("readyReplicas", 0),
            "service_requests_running": sum(one.num_running for one in loads),
            "service_requests_waiting": sum(one.num_waiting for one in loads),
            "service_pods_silent": sum(not one.answered for one in loads),
            "service_kv_cache_usage": _mean(one.kv_cache_usage for one in loads if one.answered),
            "service_gpu_utilization": _mean(one.gpu_utilization for one in loads),
        }

    def _service(self, key: Key) -> Object:
        return self.store.find(INFERENCE_SERVICE, key.namespace, key.name) or {}


def _gauge(name: str, sentence: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", sentence, value=value)


def _mean(shares: Iterable[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def _state(service: Object) -> tuple[str, str]:
    """The reasons are an enum of ours, so there are never many."""
    conditions = (service.get("status") or {}).get("conditions") or ()
    ready: Object = next((one for one in conditions if one["type"] == "Ready"), {})
    return ready.get("status", "Unknown"), ready.get("reason", "NotLookedAt")
