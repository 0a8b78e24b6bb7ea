"""The full list fills the store, puts right what a watch has missed, and tells on the watch."""

from collections.abc import Callable
from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.kinds import INFERENCE_SERVICE, NODE, POD
from forebay_operator.observed import Key
from forebay_operator.resync import Resync, TimeRunsBackwards
from forebay_operator.store import Store
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.workqueue import WorkQueue

KEY = Key("team", "llama")
LABELS = {"forebay.dev/inference-service": "llama"}


class World:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.store = Store()
        self.queue = WorkQueue()
        self.meanwhile: Callable[[], object] = lambda: None
        self.resync = Resync(self.cluster, self.store, self.queue, Metrics(), sleep=self._sleep)
        self.add(INFERENCE_SERVICE, "llama")

    def add(self, kind: Any, name: str) -> None:
        metadata = {"name": name, "namespace": "team", "labels": LABELS}
        self.cluster.add({"kind": kind.name, "metadata": metadata, "spec": {}})

    def watch(self) -> None:
        """Deliver everything that there is."""
        for item in self.cluster.objects.values():
            self.store.put(item)

    async def _sleep(self, seconds: float) -> None:
        self.meanwhile()


@pytest.fixture
def world() -> World:
    return World()


async def test_it_fills_the_store_and_has_every_service_looked_at(world: World) -> None:
    world.add(POD, "p")
    await world.resync.fill()
    assert world.store.find(POD, "team", "p") is not None
    assert world.queue.take() == KEY
    assert world.resync.complaint() == ""


async def test_a_watch_that_is_a_little_late_is_no_silent_one(world: World) -> None:
    await world.resync.fill()
    world.add(POD, "new")
    world.meanwhile = world.watch
    await world.resync.compare()
    assert world.resync.complaint() == ""


async def test_what_the_watch_never_delivers_is_put_right_and_told(world: World) -> None:
    await world.resync.fill()
    world.add(POD, "new")
    await world.resync.compare()
    assert world.store.find(POD, "team", "new") is not None
    assert "pods" in world.resync.complaint()


async def test_a_ghost_is_dropped_and_told(world: World) -> None:
    world.add(POD, "ghost")
    await world.resync.fill()
    world.cluster.remove(POD, "team", "ghost")
    await world.resync.compare()
    assert world.store.find(POD, "team", "ghost") is None
    assert "pods" in world.resync.complaint()


async def test_what_is_born_after_the_list_is_no_ghost(world: World) -> None:
    await world.resync.fill()
    world.add(POD, "late")

    def watch_a_birth() -> None:
        world.add(POD, "born")
        world.watch()

    world.meanwhile = watch_a_birth
    await world.resync.compare()
    assert world.store.find(POD, "team", "born") is not None


async def test_a_watch_that_delivers_again_is_forgiven(world: World) -> None:
    await world.resync.fill()
    world.add(POD, "new")
    await world.resync.compare()
    await world.resync.compare()
    assert world.resync.complaint() == ""


async def test_nodes_are_listed_only_where_they_may_be(world: World) -> None:
    world.store.readable = frozenset()
    await world.resync.fill()
    assert NODE.name not in {kind for _, kind, _ in world.cluster.requests}


async def test_a_list_that_is_too_old_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.resync.fill()
    monkeypatch.setattr("forebay_operator.resync.OLDEST_LIST_SECONDS", -1.0)
    assert world.resync.complaint() == "The last full list is too old"


async def test_a_watch_that_lists_anew_brings_the_next_round_forward(world: World) -> None:
    """What was deleted meanwhile is no watch's fault, and no reason to begin anew."""
    world.add(POD, "ghost")
    await world.resync.fill()
    world.cluster.remove(POD, "team", "ghost")
    await world.resync.compare(is_asked=True)
    assert world.store.find(POD, "team", "ghost") is None
    assert world.resync.complaint() == ""


async def test_an_api_server_that_knows_less_than_before_ends_the_process(world: World) -> None:
    """An etcd that was restored from a backup: each newer object would be ignored as too old."""
    world.add(POD, "young")
    await world.resync.fill()
    restored = FakeCluster()
    resync = Resync(restored, world.store, world.queue, Metrics())
    with pytest.raises(TimeRunsBackwards, match="inferenceservices"):
        await resync.compare()
