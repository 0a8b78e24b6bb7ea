"""Keeping a namespace's ledger: which events ask for it, what is written, and who is told."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.cluster import ApiError
from forebay_operator.kinds import DEPLOYMENT, INFERENCE_SERVICE, VRAM_QUOTA, Kind
from forebay_operator.observed import Key
from forebay_operator.quotas import QuotaKeeper
from forebay_operator.store import Store
from forebay_operator.workqueue import WorkQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEDGER = Key("team", "")
LLAMA, QWEN = Key("team", "llama"), Key("team", "qwen")


class World:
    """A fake cluster, a store that watches it, and the keeper."""

    def __init__(self) -> None:
        self.cluster, self.store, self.queue = FakeCluster(), Store(), WorkQueue()
        self.keeper = QuotaKeeper(self.cluster, self.store, self.queue)
        self.cluster.watchers.append(self._watch)

    def _watch(self, event: str, item: Any) -> None:
        for key in self.store.drop(item) if event == "DELETED" else self.store.put(item):
            self.queue.add(key)

    def taken(self) -> set[Key]:
        """Every key that waits on the queue."""
        keys = set()
        while (key := self.queue.take()) is not None:
            self.queue.done(key)
            keys.add(key)
        return keys

    def add(self, kind: Kind, name: str, **parts: Any) -> dict[str, Any]:
        metadata = {"namespace": "team", "name": name, **parts.pop("metadata", {})}
        return self.cluster.add(
            {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}
        )

    def add_service(self, name: str, total: str) -> dict[str, Any]:
        vram = {"perReplica": total, "mostReplicas": 1, "total": total}
        plan = {"budget": total}
        return self.add(INFERENCE_SERVICE, name, spec={}, status={"vram": vram, "plan": plan})

    def add_deployment(self, owner: dict[str, Any], **reference: Any) -> None:
        owned = {
            "apiVersion": INFERENCE_SERVICE.api_version,
            "kind": INFERENCE_SERVICE.name,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"ownerReferences": [owned | reference]}
        name = owner["metadata"]["name"]
        self.add(DEPLOYMENT, name, metadata=metadata, spec={"replicas": 1})

    async def keep(self) -> dict[str, str]:
        """What each service is granted then."""
        await self.keeper.keep("team", NOW)
        found = self.cluster.objects["VRAMQuota", "team", "gpus"].get("status") or {}
        return {one["name"]: one["granted"] for one in found.get("services") or ()}


@pytest.fixture
def world() -> World:
    """A budget of 100 GiB, of which one service has 80."""
    world = World()
    world.add(VRAM_QUOTA, "gpus", spec={"budget": "100Gi"})
    world.add_service("llama", "80Gi")
    return world


async def test_a_ledger_is_written_once(world: World) -> None:
    assert await world.keep() == {"llama": "80Gi"}
    assert await world.keep() == {"llama": "80Gi"}
    assert world.cluster.writes == [("apply", "VRAMQuota/status", "gpus")]


async def test_services_and_their_deployments_ask_for_the_ledger_of_their_namespace(
    world: World,
) -> None:
    world.taken()
    llama = world.add_service("qwen", "10Gi")
    assert world.taken() == {QWEN, LEDGER}
    world.add_deployment(llama)
    assert world.taken() == {QWEN, LEDGER}
    world.cluster.remove(INFERENCE_SERVICE, "team", "qwen")
    assert world.taken() == {QWEN, LEDGER}
    world.add(INFERENCE_SERVICE, "far", metadata={"namespace": "other"}, spec={})
    assert world.taken() == {Key("other", "far")}


async def test_a_new_grant_is_told_to_who_got_it_and_to_who_waits(world: World) -> None:
    await world.keep()
    world.add_service("qwen", "60Gi")
    world.taken()
    assert await world.keep() == {"llama": "80Gi", "qwen": "0"}
    assert world.taken() == {QWEN, LEDGER}
    world.cluster.remove(INFERENCE_SERVICE, "team", "llama")
    world.taken()
    assert await world.keep() == {"qwen": "60Gi"}
    assert world.taken() == {QWEN, LEDGER}


async def test_a_budget_that_comes_changes_or_goes_is_told_to_everybody(world: World) -> None:
    assert world.taken() == {LLAMA, LEDGER}
    world.cluster.change(VRAM_QUOTA, "team", "gpus", {"spec": {"budget": "1Gi"}})
    assert world.taken() == {LLAMA, LEDGER}
    world.cluster.remove(VRAM_QUOTA, "team", "gpus")
    assert world.taken() == {LLAMA, LEDGER}
    await world.keeper.keep("team", NOW)
    assert world.cluster.writes == []


async def test_what_runs_counts_and_a_foreign_deployment_of_the_name_does_not(world: World) -> None:
    world.cluster.change(VRAM_QUOTA, "team", "gpus", {"spec": {"budget": "10Gi"}})
    llama = world.store.find(INFERENCE_SERVICE, "team", "llama")
    world.add_deployment(dict(llama or {}))
    world.add_deployment(world.add_service("qwen", "40Gi"), uid="somebody")
    assert await world.keep() == {"llama": "80Gi", "qwen": "0"}


async def test_what_was_written_is_known_before_any_watch_shows_it(world: World) -> None:
    world.cluster.is_silent = True
    await world.keep()
    vram = {"perReplica": "80Gi", "mostReplicas": 1, "total": "80Gi"}
    born = {"creationTimestamp": "2025-01-01T00:00:00Z", "resourceVersion": "900", "uid": "old"}
    older = {"kind": "InferenceService", "spec": {}, "status": {"vram": vram}}
    world.store.put({**older, "metadata": {"namespace": "team", "name": "old", **born}})
    assert await world.keep() == {"old": "0", "llama": "80Gi"}


@pytest.mark.parametrize("status", [404, 409])
async def test_a_quota_that_has_just_gone_is_no_error(world: World, status: int) -> None:
    world.cluster.refusals["apply", "VRAMQuota/status"] = ApiError(status, "gone")
    assert await world.keep() == {}


async def test_a_write_that_is_refused_is_tried_again_by_the_queue(world: World) -> None:
    world.cluster.refusals["apply", "VRAMQuota/status"] = ApiError(500, "busy")
    with pytest.raises(ApiError):
        await world.keep()


def test_every_budget_is_looked_at_again_now_and_then(world: World) -> None:
    world.add(VRAM_QUOTA, "more", spec={"budget": "1Gi"})
    assert world.store.keys_of_quotas() == (LEDGER,)
