"""The work queue under a clock of our own."""

import asyncio

import pytest

from forebay_operator.observed import Key
from forebay_operator.workqueue import LONGEST_DELAY_SECONDS, WorkQueue
from set_clock import SetClock

A, B = Key("n", "a"), Key("n", "b")


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def queue(clock: SetClock) -> WorkQueue:
    return WorkQueue(clock, jitter=lambda: 0.5)


def test_a_key_added_often_waits_once(queue: WorkQueue) -> None:
    for key in (A, B, A, A):
        queue.add(key)
    assert [queue.take(), queue.take(), queue.take()] == [A, B, None]


def test_a_key_in_work_is_given_to_no_second_worker(queue: WorkQueue) -> None:
    queue.add(A)
    queue.take()
    queue.add(A)
    assert queue.take() is None
    queue.done(A)
    assert queue.take() == A


def test_a_key_that_was_not_added_again_ends_with_its_work(queue: WorkQueue) -> None:
    queue.add(A)
    queue.take()
    queue.done(A)
    assert queue.take() is None


def test_a_delayed_key_comes_when_it_is_due(queue: WorkQueue, clock: SetClock) -> None:
    queue.add_later(A, 10)
    assert queue.take() is None
    clock.now = 10
    assert queue.take() == A


def test_the_earliest_delay_wins(queue: WorkQueue, clock: SetClock) -> None:
    for delay in (30, 10, 20):
        queue.add_later(A, delay)
    clock.now = 10
    assert queue.take() == A
    queue.done(A)
    clock.now = 30
    assert queue.take() is None


def test_back_off_doubles_up_to_its_limit_and_starts_anew_after_a_success(queue: WorkQueue) -> None:
    delays = [queue.retry(A) for _ in range(10)]
    assert delays[:4] == [0.5, 1.0, 2.0, 4.0]
    assert delays[-1] == LONGEST_DELAY_SECONDS
    assert queue.retry(B) == 0.5
    queue.succeeded(A)
    assert queue.retry(A) == 0.5


@pytest.mark.parametrize(("jitter", "delay"), [(0.0, 0.375), (1.0, 0.625)])
def test_back_off_is_spread(jitter: float, delay: float) -> None:
    assert WorkQueue(jitter=lambda: jitter).retry(A) == delay


def test_a_forgotten_key_leaves_nothing_behind(queue: WorkQueue, clock: SetClock) -> None:
    queue.add(A)
    queue.add_later(A, 1)
    queue.retry(A)
    queue.forget(A)
    clock.now = 100
    assert queue.take() is None
    assert queue.retry(A) == 0.5


async def test_a_waiting_worker_wakes_for_a_new_key(queue: WorkQueue) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    assert await waiting == A


async def test_every_waiting_worker_gets_a_key_of_its_own() -> None:
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add(A)
    queue.add(B)
    assert set(await asyncio.gather(*waiting)) == {A, B}


async def test_a_waiting_worker_wakes_for_a_delayed_key() -> None:
    queue = WorkQueue()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_later(A, 0.01)
    assert await asyncio.wait_for(waiting, 10) == A
