"""Which pods are asked for their load, how often, and what their answers do."""

import asyncio
import gzip
from typing import Any

import pytest

from forebay_operator.loads.scrape import Scraper, Target, parse_load, read_load, to_target
from forebay_operator.observed import Key, PodLoad
from forebay_operator.store import Store
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.workqueue import WorkQueue

KEY = Key("team", "llama")
READY = {"type": "Ready", "status": "True"}


def pod(**parts: Any) -> dict[str, Any]:
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [READY]}
    labels = {"forebay.dev/inference-service": "llama"}
    metadata = {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "2"}
    port = {"name": "http", "containerPort": parts.get("port", 9000)}
    return {
        "kind": "Pod",
        "metadata": {"labels": labels, **metadata, **parts.get("metadata", {})},
        "spec": {"containers": [{"ports": [port]}]},
        "status": {**status, **parts.get("status", {})},
    }


def service(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "llama", "namespace": "team", "uid": "s", "resourceVersion": "1"}
    return {"kind": "InferenceService", "metadata": metadata, "spec": spec}


LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
UNREADY = {"type": "Ready", "status": "False"}


@pytest.mark.parametrize(
    ("item", "address"),
    [
        (pod(), ("10.0.0.1", 9000)),
        (pod(status={"podIP": "fd00::1"}), ("fd00::1", 9000)),
        (pod(metadata=LEAVING, status={"conditions": [UNREADY]}), ("10.0.0.1", 9000)),
        (pod(status={"conditions": [UNREADY]}), None),
        (pod(status={"phase": "Succeeded"}), None),
        (pod(status={"podIP": ""}), None),
        (pod(metadata={"labels": {"forebay.dev/inspection-of": "llama"}}), None),
    ],
    ids=[
        "a ready pod",
        "a pod with an IPv6 address",
        "a pod that drains",
        "a pod that starts",
        "a pod that ended",
        "a pod without an address",
        "a pod that inspects",
    ],
)
def test_pods_that_can_answer_are_asked(
    item: dict[str, Any], address: tuple[str, int] | None
) -> None:
    target = to_target(KEY, item)
    assert (target and (target.host, target.port)) == address


@pytest.mark.parametrize(
    ("spec", "item", "times"),
    [
        ({}, pod(), [0, 30, 60]),
        ({"scaling": {"maxReplicas": 2}}, pod(), list(range(0, 62, 2))),
        ({}, pod(metadata=LEAVING), list(range(0, 62, 2))),
    ],
    ids=["seldom", "often while it scales", "often while a pod drains"],
)
def test_a_service_is_asked_as_often_as_a_decision_hangs_on_it(
    spec: dict[str, Any], item: dict[str, Any], times: list[int]
) -> None:
    store = Store()
    store.put(service(spec))
    store.put(item)
    scraper = Scraper(store, WorkQueue(), Metrics())
    asked = [now for now in range(0, 62, 2) if list(scraper.due_targets(float(now)))]
    assert asked == times


def test_an_answer_that_is_news_has_its_service_looked_at() -> None:
    queue = WorkQueue()
    scraper = Scraper(Store(), queue, Metrics())
    target = Target(KEY, "u", "10.0.0.1", 9000)
    for said, key in (
        (PodLoad(True, 1), KEY),
        (PodLoad(True, 1), None),
        (PodLoad(True, 1, kv_cache_usage=0.5, free_kv_tokens=9, gpu_utilization=0.3), None),
        (PodLoad(True, 2), KEY),
        (PodLoad(False), KEY),
    ):
        scraper.note(target, said)
        taken = queue.take()
        assert taken == key
        queue.done(KEY)
        assert scraper.loads == {"u": said}


def test_what_pods_said_goes_with_them() -> None:
    store = Store()
    store.put(service({}))
    store.put(pod())
    scraper = Scraper(store, WorkQueue(), Metrics())
    for target in scraper.due_targets(0.0):
        scraper.note(target, PodLoad(True, 1))
    assert set(scraper.loads) == {"u"}
    store.drop(pod())
    list(scraper.due_targets(2.0))
    assert scraper.loads == {}


ANSWER = b'{"running": 1, "waiting": 2, "kvCacheUsage": 0.5, "freeKvTokens": 3}'


MEASURED = {"weights": 1, "kvCache": 2, "activation": 3, "overhead": 4}
OLD = {"running": 1, "waiting": 2, "kvCacheUsage": 0.5, "freeKvTokens": 3}


@pytest.mark.parametrize(
    ("more", "load"),
    [
        ({}, PodLoad(True, 1, 2, 0.5, 3)),
        (
            {"device": "cuda", "gpuUtilization": 1, "memoryBytes": MEASURED},
            PodLoad(True, 1, 2, 0.5, 3, "cuda", 1.0, MEASURED),
        ),
        (
            {"device": None, "gpuUtilization": None, "memoryBytes": None},
            PodLoad(True, 1, 2, 0.5, 3),
        ),
        ({"device": "a" * 4000}, PodLoad(True, 1, 2, 0.5, 3)),
        ({"device": ["cpu"]}, PodLoad(True, 1, 2, 0.5, 3)),
        ({"gpuUtilization": 100}, PodLoad(True, 1, 2, 0.5, 3)),
        ({"memoryBytes": {"weights": 1}}, PodLoad(True, 1, 2, 0.5, 3)),
        ({"memoryBytes": MEASURED | {"kvCache": -1}}, PodLoad(True, 1, 2, 0.5, 3)),
        ({"memoryBytes": MEASURED | {"kvCache": 2**70}}, PodLoad(True, 1, 2, 0.5, 3)),
        (
            {"memoryBytes": MEASURED | {"more": "x"}},
            PodLoad(True, 1, 2, 0.5, 3, memory_bytes=MEASURED),
        ),
    ],
    ids=[
        "an older runtime",
        "a warm runtime on a GPU",
        "a runtime that warms up",
        "a device that nobody knows",
        "a device that is none",
        "a utilisation in percent",
        "a part of the memory",
        "memory below nothing",
        "more memory than can be",
        "a term that nobody knows",
    ],
)
def test_what_younger_runtimes_add_is_read_where_it_is_understood(
    more: dict[str, Any], load: PodLoad
) -> None:
    assert parse_load(OLD | more) == load


def http(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("said", "load"),
    [
        (http("200 OK", ANSWER), PodLoad(True, 1, 2, 0.5, 3)),
        (http("200 OK", ANSWER + b" " * 100_000), PodLoad(False)),
        (http("302 Found", b"", "Location: /elsewhere"), PodLoad(False)),
        (http("200 OK", gzip.compress(ANSWER), "Content-Encoding: gzip"), PodLoad(False)),
        (http("200 OK", b"[]"), PodLoad(False)),
        (http("200 OK", b'{"running": 1}'), PodLoad(False)),
        (http("200 OK", ANSWER.replace(b"1", b"Infinity")), PodLoad(False)),
        (http("200 OK", ANSWER.replace(b"2", b"-2")), PodLoad(False)),
        (http("200 OK", ANSWER.replace(b"0.5", b"NaN")), PodLoad(False)),
        (http("200 OK", ANSWER.replace(b"3", b"9" * 30)), PodLoad(False)),
        (http("200 OK", b"[" * 4000), PodLoad(False)),
        (b"nonsense", PodLoad(False)),
        (b"", PodLoad(False)),
    ],
    ids=[
        "an answer",
        "one that is too long",
        "a redirection",
        "a compressed one",
        "another shape",
        "a part of one",
        "a number that is none",
        "fewer than nothing",
        "a share that is none",
        "more than can be",
        "nesting without end",
        "no HTTP",
        "nothing",
    ],
)
async def test_a_pod_is_asked_without_trusting_it(said: bytes, load: PodLoad) -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert await read_load(Target(KEY, "u", "127.0.0.1", port)) == load
    assert {one.split()[1] for one in asked} == {b"/load"}


def test_what_a_pod_said_before_it_stopped_being_ready_is_forgotten() -> None:
    store = Store()
    store.put(service({}))
    store.put(pod())
    scraper = Scraper(store, WorkQueue(), Metrics())
    for target in scraper.due_targets(0.0):
        scraper.note(target, PodLoad(True, 4, 11))
    store.put(pod(metadata={"resourceVersion": "3"}, status={"conditions": [UNREADY]}))
    list(scraper.due_targets(2.0))
    assert scraper.loads == {}


async def test_a_pod_that_has_just_answered_is_asked_again_where_a_decision_hangs_on_it() -> None:
    running = iter(range(100))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = ANSWER.replace(b'"running": 1', b'"running": %d' % next(running))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = Store()
    store.put(service({}))
    store.put(pod(port=port, status={"podIP": "127.0.0.1"}))
    scraper = Scraper(store, WorkQueue(), Metrics())
    async with server:
        asking = asyncio.create_task(scraper.run())
        while not scraper.loads:
            await asyncio.sleep(0.01)
        await scraper.refresh(KEY)
        asking.cancel()
    assert scraper.loads["u"].num_running == 1
