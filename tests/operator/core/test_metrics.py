"""What is counted, and what is read from the operator's state, as Prometheus gets it."""

from typing import Any

import pytest
from prometheus_client.exposition import generate_latest

from fake_cluster import FakeCluster
from forebay_operator.lease import LeaseHolder
from forebay_operator.observed import Key, PodLoad
from forebay_operator.planned import Tally
from forebay_operator.store import Store
from forebay_operator.telemetry.gauges import Gauges
from forebay_operator.telemetry.metrics import Metrics, name_request
from forebay_operator.workqueue import WorkQueue
from operator_metrics import OperatorMetrics, parse_operator_metrics
from set_clock import SetClock

KEY = Key("team", "llama")


class World:
    def __init__(self) -> None:
        self.clock = SetClock(100.0)
        self.metrics = Metrics(self.clock)
        self.store = Store()
        self.queue = WorkQueue(self.clock)
        self.lease = LeaseHolder(FakeCluster(), "forebay-system", "me", self.clock)
        self.loads: dict[str, PodLoad] = {}
        watches = self.metrics.watches
        gauges = Gauges(self.store, self.queue, self.lease, watches, self.loads)
        self.metrics.registry.register(gauges)

    def read(self) -> OperatorMetrics:
        return parse_operator_metrics(generate_latest(self.metrics.registry).decode())

    def put(self, kind: str, name: str, **parts: Any) -> dict[str, Any]:
        labels = {"forebay.dev/inference-service": "llama"}
        metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1"}
        item = {"kind": kind, "metadata": {**metadata, "labels": labels}, **parts}
        self.store.put(item)
        return item


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("GET", "/api/v1/nodes", ("list", "nodes")),
        ("GET", "/api/v1/namespaces/a/pods", ("list", "pods")),
        ("GET", "/api/v1/namespaces/a/pods/p", ("get", "pods")),
        ("GET", "/apis/apps/v1/deployments", ("list", "deployments")),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d", ("patch", "deployments")),
        (
            "PATCH",
            "/apis/forebay.dev/v1alpha1/namespaces/a/inferenceservices/s/status",
            ("patch", "inferenceservices/status"),
        ),
        ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", ("create", "events")),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", ("update", "leases")),
        ("DELETE", "/apis/batch/v1/namespaces/a/jobs/j", ("delete", "jobs")),
    ],
    ids=lambda part: part if isinstance(part, str) else "/".join(part),
)
def test_a_request_is_named_as_rbac_names_it(
    method: str, path: str, named: tuple[str, str]
) -> None:
    assert name_request(method, path) == named


def test_requests_are_counted_by_their_answer(world: World) -> None:
    for status in (200, 200, 429, None):
        world.metrics.observe_request("GET", "/api/v1/nodes", status, 0.02)
    found = world.read()
    counts = [
        found.value("api_requests_total", verb="list", resource="nodes", code=code)
        for code in ("200", "429", "none")
    ]
    assert counts == [2, 1, 1]
    assert found.value("api_request_duration_seconds_count", verb="list", resource="nodes") == 4


def test_decisions_are_counted_by_what_the_plan_says(world: World) -> None:
    tally = Tally("scale_decisions", {"reason": "QueueAboveTarget"})
    world.metrics.count_tallies((tally, tally, Tally("drains", {"outcome": "forced"})))
    found = world.read()
    assert found.value("scale_decisions_total", reason="QueueAboveTarget") == 2
    assert found.value("drains_total", outcome="forced") == 1


@pytest.mark.parametrize(
    "tally", [Tally("unheard"), Tally("drains", {"reason": "x"})], ids=["its name", "its label"]
)
def test_a_tally_that_no_metric_has_is_an_error(world: World, tally: Tally) -> None:
    with pytest.raises((KeyError, ValueError)):
        world.metrics.count_tallies((tally,))


def test_the_time_and_the_end_of_a_reconcile_are_kept(world: World) -> None:
    with world.metrics.time_reconcile() as outcome:
        world.clock.now += 2.0
        outcome.name = "done"
    with pytest.raises(RuntimeError), world.metrics.time_reconcile():
        raise RuntimeError
    found = world.read()
    assert found.value("reconcile_duration_seconds_sum", outcome="done") == 2.0
    assert found.value("reconcile_duration_seconds_count", outcome="interrupted") == 1


def test_the_queue_is_told_by_depth_and_age(world: World) -> None:
    world.queue.waited = world.metrics.observe_wait
    world.queue.add(KEY)
    world.queue.add(Key("team", "other"))
    world.clock.now += 5
    world.queue.take()
    world.clock.now += 2
    found = world.read()
    assert found.value("queue_depth") == 1
    assert found.value("queue_oldest_seconds") == 7
    assert found.value("longest_work_seconds") == 2
    assert found.value("queue_wait_seconds_sum") == 5


def test_a_watch_is_as_old_as_its_last_event(world: World) -> None:
    world.metrics.count_watch_event("pods", "ADDED")
    world.clock.now += 9
    assert world.read().value("watch_age_seconds", resource="pods") == 9


async def test_services_are_told_by_the_leader_alone_and_forgotten_when_they_go(
    world: World,
) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "AllReplicasReady"}
    service = world.put("InferenceService", "llama", status={"conditions": [ready]})
    world.put("Deployment", "llama", spec={"replicas": 3})
    world.put("Pod", "pod-1")
    world.put("Pod", "pod-2")
    world.loads["pod-1"] = PodLoad(True, num_running=4, num_waiting=2, kv_cache_usage=0.5)
    world.loads["pod-2"] = PodLoad(False)
    assert not world.read().labelled("service_replicas_wanted")
    await world.lease.try_acquire()
    found, names = world.read(), {"namespace": "team", "name": "llama"}
    assert found.value("leader") == 1
    assert found.value("services", ready="True", reason="AllReplicasReady") == 1
    assert found.value("service_replicas_wanted", **names) == 3
    assert found.value("service_replicas_ready", **names) == 0
    assert found.value("service_requests_running", **names) == 4
    assert found.value("service_requests_waiting", **names) == 2
    assert found.value("service_pods_silent", **names) == 1
    assert found.value("service_kv_cache_usage", **names) == 0.5
    assert not found.labelled("service_gpu_utilization", **names)
    world.store.drop(service)
    assert not world.read().labelled("service_replicas_wanted", **names)
