"""The lease under clocks of our own, against a fake API server."""

from typing import Any

import pytest

from fake_cluster import FakeCluster
from forebay_operator.cluster import ApiError
from forebay_operator.kinds import LEASE
from forebay_operator.lease import (
    DEADLINE_SECONDS,
    DURATION_SECONDS,
    LAST_WRITE_SECONDS,
    LeaseHolder,
    LeaseLost,
)
from set_clock import SetClock


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


def holder(cluster: FakeCluster, name: str, clock: SetClock) -> LeaseHolder:
    return LeaseHolder(cluster, "forebay-system", name, clock)


def spec(cluster: FakeCluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.objects["Lease", "forebay-system", "forebay-operator"]["spec"]
    return found


async def test_the_first_takes_it_and_the_second_does_not(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first, second = holder(cluster, "a", clock), holder(cluster, "b", clock)
    assert await first.try_acquire()
    assert not await second.try_acquire()
    first.check()
    with pytest.raises(LeaseLost):
        second.check()


async def test_one_that_is_renewed_is_never_taken(cluster: FakeCluster, clock: SetClock) -> None:
    first, second = holder(cluster, "a", clock), holder(cluster, "b", clock)
    await first.try_acquire()
    for _ in range(10):
        assert not await second.try_acquire()
        clock.now += DURATION_SECONDS - 1
        await first.renew()
    assert not await second.try_acquire()


async def test_one_that_was_left_is_taken_after_its_duration(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first, second = holder(cluster, "a", clock), holder(cluster, "b", clock)
    await first.try_acquire()
    assert not await second.try_acquire()
    clock.now += DURATION_SECONDS
    assert not await second.try_acquire()
    clock.now += 0.1
    assert await second.try_acquire()
    assert (spec(cluster)["holderIdentity"], spec(cluster)["leaseTransitions"]) == ("b", 1)


async def test_the_end_of_one_that_was_left_is_not_slept_through(
    cluster: FakeCluster, clock: SetClock
) -> None:
    await holder(cluster, "a", clock).try_acquire()
    second = holder(cluster, "b", clock)
    began = clock.now
    while not await second.try_acquire():
        clock.now += second.seconds_to_next_try()
    assert DURATION_SECONDS < clock.now - began < DURATION_SECONDS + 0.5


async def test_a_challenger_counts_from_when_it_looked_first(
    cluster: FakeCluster, clock: SetClock
) -> None:
    await holder(cluster, "a", clock).try_acquire()
    clock.now += 1000
    assert not await holder(cluster, "b", clock).try_acquire()


async def test_the_holder_has_stopped_before_another_starts(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first, second = holder(cluster, "a", clock), holder(cluster, "b", clock)
    await first.try_acquire()
    await second.try_acquire()
    clock.now += DEADLINE_SECONDS + 0.1
    with pytest.raises(LeaseLost):
        first.check()
    assert not await second.try_acquire()


async def test_failed_renewals_are_borne_until_the_deadline(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    cluster.refusals["replace", "Lease"] = ApiError(503, "busy")
    clock.now += DEADLINE_SECONDS - 1
    await first.renew()
    first.check()
    clock.now += 2
    with pytest.raises(LeaseLost):
        await first.renew()


async def test_a_renewal_that_another_holder_overtook_ends_it_at_once(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    cluster.change(LEASE, "forebay-system", "forebay-operator", {"spec": {"holderIdentity": "b"}})
    with pytest.raises(LeaseLost, match="was taken"):
        await first.renew()
    with pytest.raises(LeaseLost):
        first.check()


async def test_a_released_one_is_free_at_once_and_its_holder_is_done(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first, second = holder(cluster, "a", clock), holder(cluster, "b", clock)
    await first.try_acquire()
    await first.release()
    assert await second.try_acquire()
    with pytest.raises(LeaseLost):
        first.check()


async def test_one_that_lost_it_does_not_release_it(cluster: FakeCluster, clock: SetClock) -> None:
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    cluster.change(LEASE, "forebay-system", "forebay-operator", {"spec": {"holderIdentity": "b"}})
    with pytest.raises(LeaseLost):
        await first.renew()
    await first.release()
    assert spec(cluster)["holderIdentity"] == "b"


async def test_a_restarted_process_of_the_same_name_goes_on(
    cluster: FakeCluster, clock: SetClock
) -> None:
    await holder(cluster, "a", clock).try_acquire()
    assert await holder(cluster, "a", clock).try_acquire()
    assert spec(cluster)["leaseTransitions"] == 0


async def test_of_two_that_take_it_together_one_loses(
    cluster: FakeCluster, clock: SetClock
) -> None:
    cluster.refusals["create", "Lease"] = ApiError(409, "already exists")
    assert not await holder(cluster, "a", clock).try_acquire()


async def test_a_write_has_the_time_until_another_may_start(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    assert first.check() == LAST_WRITE_SECONDS < DURATION_SECONDS
    clock.now += DEADLINE_SECONDS
    assert first.check() == LAST_WRITE_SECONDS - DEADLINE_SECONDS > 0


async def test_a_renewal_is_one_request(cluster: FakeCluster, clock: SetClock) -> None:
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    cluster.requests.clear()
    await first.renew()
    assert [verb for verb, _, _ in cluster.requests] == ["replace"]


async def test_a_lease_that_a_person_has_annotated_is_kept(
    cluster: FakeCluster, clock: SetClock
) -> None:
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    note = {"metadata": {"annotations": {"note": "by hand"}}}
    cluster.change(LEASE, "forebay-system", "forebay-operator", note)
    await first.renew()
    assert first.is_held


async def test_a_lease_that_is_deleted_by_hand_is_lost(
    cluster: FakeCluster, clock: SetClock
) -> None:
    """Another may have taken it by now, and given it back."""
    first = holder(cluster, "a", clock)
    await first.try_acquire()
    cluster.remove(LEASE, "forebay-system", "forebay-operator")
    with pytest.raises(LeaseLost):
        await first.renew()
