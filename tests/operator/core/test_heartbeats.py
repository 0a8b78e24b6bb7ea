"""Silence is told by loops, workers and watches, under a clock of our own."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.lease import LeaseHolder
from forebay_operator.loads.scrape import Scraper
from forebay_operator.observed import Key
from forebay_operator.resync import Resync
from forebay_operator.store import Store
from forebay_operator.telemetry.heartbeats import Heartbeats
from forebay_operator.telemetry.liveness import LIMITS_SECONDS, LONGEST_WORK_SECONDS, Liveness
from forebay_operator.telemetry.metrics import Metrics
from forebay_operator.workqueue import WorkQueue
from set_clock import SetClock


class World:
    def __init__(self) -> None:
        self.clock = SetClock(100.0)
        self.loops = Heartbeats(self.clock)
        self.queue = WorkQueue(self.clock)
        self.resync = Resync(FakeCluster(), Store(), self.queue, Metrics())
        self.liveness = Liveness(self.loops, self.queue, self.resync)


@pytest.fixture
def world() -> World:
    return World()


def test_a_process_that_has_not_begun_is_alive(world: World) -> None:
    world.clock.now += 1e6
    assert world.liveness.complaint() == ""


@pytest.mark.parametrize("loop", LIMITS_SECONDS)
def test_a_loop_that_is_silent_for_too_long_is_told(world: World, loop: str) -> None:
    world.loops.beat(loop)
    world.clock.now += LIMITS_SECONDS[loop]
    assert world.liveness.complaint() == ""
    world.clock.now += 1
    assert f"The {loop} loop is silent for" in world.liveness.complaint()
    world.loops.beat(loop)
    assert world.liveness.complaint() == ""


def test_a_worker_that_does_not_get_done_is_told_and_one_that_waits_is_not(world: World) -> None:
    key = Key("team", "llama")
    world.queue.add(key)
    world.clock.now += LONGEST_WORK_SECONDS * 2
    world.queue.take()
    assert world.liveness.complaint() == ""
    world.clock.now += LONGEST_WORK_SECONDS + 1
    assert "at one service for 301 s" in world.liveness.complaint()
    world.queue.done(key)
    assert world.liveness.complaint() == ""


def test_a_silent_watch_is_told(world: World) -> None:
    world.resync.silent = ("pods",)
    assert "pods" in world.liveness.complaint()


def test_ages_are_seconds_since_the_last_beat(world: World) -> None:
    world.loops.beat("lease")
    world.clock.now += 3
    world.loops.beat("scrape")
    assert world.loops.ages() == {"lease": 3.0, "scrape": 0.0}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """What loops appended when they beat; they do not pause."""
    for place in ("lease.RENEW_SECONDS", "lease.RETRY_SECONDS", "loads.scrape.FAST_SECONDS"):
        monkeypatch.setattr(f"forebay_operator.{place}", 0.0)
    return []


async def let_run(loop: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(loop)
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_lease_beats_while_it_waits_and_while_it_is_held(told: list[None]) -> None:
    cluster = FakeCluster()
    holder = LeaseHolder(cluster, "forebay-system", "other")
    await holder.try_acquire()
    waiting = LeaseHolder(cluster, "forebay-system", "me")
    waiting.beat = lambda: told.append(None)
    await let_run(waiting.acquire())
    assert len(told) > 3
    told.clear()
    holder.beat = lambda: told.append(None)
    await let_run(holder.keep())
    assert len(told) > 3


async def test_the_scrape_beats_though_nobody_answers(told: list[None]) -> None:
    scraper = Scraper(Store(), WorkQueue(), Metrics())
    scraper.beat = lambda: told.append(None)
    await let_run(scraper.run())
    assert len(told) > 3
