"""Replicas follow what waits: up by need and at most doubled, down by one after a quiet window."""

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_operator.observed import PodLoad, ScalingMemory
from forebay_operator.planned import Tally
from forebay_operator.planning.scaling.inputs import Queue
from forebay_operator.planning.scaling.replicas import can_shrink
from forebay_operator.planning.scaling.replicas import decide as decide_by
from forebay_operator.planning.scaling.report import Decision
from forebay_operator.planning.scaling.schedules import Timetable
from forebay_operator.service import Scaling
from observed_builder import NOW, at, child, condition, leaving, load, service, text
from toy_cluster import ToyCluster

RULE = Scaling(max_replicas=8, min_replicas=1, target_queue_depth=4, window_seconds=300)
LONG_AGO = at(-3600)
WATCHING = ScalingMemory(started_at=LONG_AGO)
IDLE = replace(WATCHING, idle_since=at(-300))


def decide(seen: Queue, rule: Scaling, memory: ScalingMemory, now: datetime) -> Decision:
    return decide_by(seen, Timetable(rule), memory, now)


def queue(ready: int = 1, pending: int = 0, running: int = 0, waiting: int = 0) -> Queue:
    return Queue(ready, pending, running, waiting)


@pytest.mark.parametrize(
    ("seen", "replicas"),
    [
        (queue(waiting=4), 1),
        (queue(waiting=5), 2),
        (queue(waiting=100), 2),
        (queue(ready=2, waiting=17), 4),
        (queue(ready=3, waiting=17), 5),
        (queue(ready=1, pending=1, waiting=8), 2),
        (queue(ready=1, pending=3, waiting=17), 5),
        (queue(ready=6, waiting=100), 8),
        (queue(ready=0, pending=1, waiting=9), 2),
    ],
    ids=[
        "the target is not above the target",
        "one more than the target asks for one more replica",
        "at most doubled",
        "doubling bounds two replicas at four",
        "17 waiting over 3, target 4: two more for the 5 uncovered",
        "a pending replica takes its share",
        "pending replicas count when more are asked",
        "never above maxReplicas",
        "doubling counts from one while nothing is ready",
    ],
)
def test_up_follows_what_waits(seen: Queue, replicas: int) -> None:
    assert decide(seen, RULE, WATCHING, NOW).num_replicas == replicas


def test_growth_over_the_start_up_time_is_met_before_it_arrives() -> None:
    growing = replace(WATCHING, growth_requests_per_second=0.5, startup_seconds=20.0)
    assert decide(queue(waiting=1), RULE, growing, NOW).num_replicas == 2
    assert decide(queue(waiting=1), RULE, WATCHING, NOW).num_replicas == 1


@pytest.mark.parametrize(
    ("seen", "memory", "replicas"),
    [
        (queue(ready=3), IDLE, 2),
        (queue(ready=3), replace(IDLE, idle_since=at(-299)), 3),
        (queue(ready=3), WATCHING, 3),
        (queue(ready=3), replace(IDLE, started_at=at(-299)), 3),
        (queue(ready=1), IDLE, 1),
        (queue(ready=9), WATCHING, 8),
    ],
    ids=[
        "by one after the whole window",
        "not a second before",
        "not without a window",
        "not before the operator has watched for one window",
        "not below minReplicas",
        "to maxReplicas at once",
    ],
)
def test_down_takes_a_quiet_window(seen: Queue, memory: ScalingMemory, replicas: int) -> None:
    assert decide(seen, RULE, memory, NOW).num_replicas == replicas


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (
            queue(ready=2, running=1),
            "Nothing waited and 1 replica would have been enough for 300 s; running now: 1 "
            "request.",
        ),
        (
            queue(ready=3),
            "Nothing waited and 2 replicas would have been enough for 300 s; running now: 0 "
            "requests.",
        ),
    ],
    ids=["one", "several"],
)
def test_why_a_replica_leaves_is_told(seen: Queue, told: str) -> None:
    assert decide(seen, RULE, IDLE, NOW).message == told


@pytest.mark.parametrize(
    ("seen", "is_enough"),
    [
        (queue(ready=2, running=6), True),
        (queue(ready=2, running=7), False),
        (queue(ready=2, running=0, waiting=1), False),
        (queue(ready=1, running=1), False),
        (queue(ready=3, running=12), True),
    ],
    ids=[
        "6 of 8 is at most 80 percent",
        "7 of 8 is more",
        "never while something waits",
        "the last replica is needed while it works",
        "12 of 16 is at most 80 percent",
    ],
)
def test_one_replica_fewer_is_enough(seen: Queue, is_enough: bool) -> None:
    assert can_shrink(seen, max_num_seqs=8) == is_enough


COUNTS = st.integers(0, 40)
QUEUES = st.builds(queue, COUNTS, COUNTS, st.integers(0, 500), st.integers(0, 500))
RULES = st.builds(
    lambda least, more, target, window: Scaling(least + more, least, target, window),
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(1, 50),
    st.sampled_from([0, 10, 300]),
)
MEMORIES = st.builds(
    lambda growth, startup, idle: ScalingMemory(LONG_AGO, idle, growth, startup),
    st.floats(0, 100),
    st.floats(0, 600),
    st.sampled_from([None, NOW, at(-10), at(-1000)]),
)


@settings(deadline=None)
@given(QUEUES, RULES, MEMORIES)
def test_a_decision_stays_within_its_bounds(
    seen: Queue, rule: Scaling, memory: ScalingMemory
) -> None:
    decided = decide(seen, rule, memory, NOW).num_replicas
    assert rule.min_replicas <= decided <= rule.max_replicas


@settings(deadline=None)
@given(QUEUES, RULES, MEMORIES)
def test_a_decision_at_most_doubles_and_takes_one_at_most(
    seen: Queue, rule: Scaling, memory: ScalingMemory
) -> None:
    current = seen.num_replicas
    decided = decide(seen, rule, memory, NOW).num_replicas
    if rule.min_replicas <= current <= rule.max_replicas:
        assert current - 1 <= decided <= 2 * max(1, current)


class ScalingCluster(ToyCluster):
    """A settled service that scales, whose pods say what a test wants."""

    def __init__(self, **rule: Any) -> None:
        given = {"maxReplicas": 4, "scaleDownStabilizationSeconds": 60, "targetQueueDepth": 4}
        super().__init__(service(scaling=given | rule, engine={"maxNumSeqs": 4}))
        self.settle()

    def say(self, *loads: PodLoad | None) -> None:
        pairs = zip((one["metadata"]["uid"] for one in self.pods), loads, strict=True)
        self.loads = {uid: said for uid, said in pairs if said is not None}

    def decide_and_apply(self) -> int:
        decided = self.decide()
        self.carry_out(decided)
        deployment = child(decided, "Deployment")
        return deployment["spec"]["replicas"] if deployment else -1

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.service["status"]["scaling"]
        return found


def test_a_scaling_service_begins_with_its_minimum() -> None:
    cluster = ScalingCluster(minReplicas=2)
    assert len(cluster.pods) == 2
    assert cluster.report()["desiredReplicas"] == 2


def test_a_decision_is_explained_with_its_numbers() -> None:
    cluster = ScalingCluster()
    cluster.say(load(4, 11))
    assert cluster.decide_and_apply() == 2
    assert cluster.report() == {
        "desiredReplicas": 2,
        "reason": "QueueAboveTarget",
        "message": "11 waiting over 1 ready replica, target 4.",
        "lastScaleTime": text((cluster.now - NOW).total_seconds()),
        "minReplicas": 1,
        "maxReplicas": 4,
        "inputs": {
            "waiting": 11,
            "running": 4,
            "ready": 1,
            "pending": 0,
            "kvCacheUsagePercent": 0,
        },
    }


def test_the_explanation_of_a_change_stands_while_the_new_pods_start() -> None:
    cluster = ScalingCluster()
    cluster.say(load(4, 8))
    cluster.decide_and_apply()
    before = cluster.report()
    cluster.step(2)
    assert cluster.decide_and_apply() == 2
    assert cluster.report() == before


def test_the_queue_of_a_pod_that_crashed_is_gone_with_it() -> None:
    cluster = ScalingCluster()
    cluster.say(load(4, 11))
    cluster.befall({"phase": "Running", "conditions": [condition("Ready", "False")]})
    assert cluster.decide_and_apply() == 1


@pytest.mark.parametrize("is_leaving", [True, False], ids=["it drains", "it is gone"])
def test_the_numbers_of_a_pod_that_goes_are_forgotten_at_once(is_leaving: bool) -> None:
    cluster = ScalingCluster(minReplicas=2)
    cluster.say(load(4, 11), load(1, 1))
    if is_leaving:
        cluster.pods[0] = leaving(cluster.pods[0])
    else:
        del cluster.pods[0]
    cluster.now += timedelta(seconds=31)
    decided = cluster.decide()
    inputs = (decided.status or {})["scaling"]["inputs"]
    assert (inputs["waiting"], inputs["running"], inputs["pending"]) == (1, 1, 1)
    assert decided.tallies == ()


def test_raising_min_replicas_scales_at_once_and_lowering_max_replicas_does_too() -> None:
    cluster = ScalingCluster()
    cluster.change(scaling={"minReplicas": 3, "maxReplicas": 4})
    cluster.say(load())
    assert cluster.decide_and_apply() == 3
    assert cluster.report()["message"] == "1 became 3: scaling.minReplicas."
    cluster.step()
    cluster.change(scaling={"maxReplicas": 2})
    cluster.say(load(4), load(4), load(4))
    assert cluster.decide_and_apply() == 2
    assert cluster.report()["message"] == "3 became 2: scaling.maxReplicas."


def test_what_is_decided_is_counted_with_its_reason_and_told() -> None:
    cluster = ScalingCluster()
    cluster.say(load(4, 8))
    decided = cluster.decide()
    assert decided.tallies == (Tally("scale_decisions", {"reason": "QueueAboveTarget"}),)
    told = "Scaled to 2 replicas: 8 waiting over 1 ready replica, target 4."
    assert told in {note.message for note in decided.notes}
    cluster.carry_out(decided)
    assert cluster.decide().tallies == ()


def test_what_pods_say_is_added_up_and_averaged_over_those_that_say_it() -> None:
    cluster = ScalingCluster(minReplicas=3)
    busy = PodLoad(True, 4, 3, kv_cache_usage=0.9, gpu_utilization=0.5)
    cluster.say(busy, PodLoad(True, 1, 0, kv_cache_usage=0.2), None)
    cluster.now += timedelta(seconds=31)
    assert (cluster.decide().status or {})["scaling"]["inputs"] == {
        "waiting": 3,
        "running": 5,
        "ready": 3,
        "pending": 0,
        "silent": 1,
        "kvCacheUsagePercent": 55,
        "gpuUtilizationPercent": 50,
    }


def test_newer_numbers_wait_half_a_minute_and_are_not_forgotten() -> None:
    cluster = ScalingCluster()
    cluster.now += timedelta(seconds=31)
    cluster.say(load(2))
    cluster.decide_and_apply()
    cluster.now += timedelta(seconds=2)
    cluster.say(load(1))
    decided = cluster.decide()
    cluster.carry_out(decided)
    assert cluster.report()["inputs"]["running"] == 2
    assert decided.look_again_seconds == pytest.approx(28)
    cluster.now += timedelta(seconds=28)
    assert (cluster.decide().status or {})["scaling"]["inputs"]["running"] == 1


def test_a_deployment_that_somebody_deleted_returns_with_the_replicas_that_were_decided() -> None:
    cluster = ScalingCluster()
    cluster.say(load(4, 11))
    assert cluster.decide_and_apply() == 2
    before = cluster.report()
    del cluster.children["Deployment", "smollm2"]
    cluster.pods.clear()
    assert cluster.decide_and_apply() == 2
    assert cluster.report() == before


def test_at_the_maximum_the_status_says_what_holds_it_back() -> None:
    cluster = ScalingCluster(maxReplicas=1)
    cluster.say(load(4, 11))
    assert cluster.decide_and_apply() == 1
    assert cluster.report()["reason"] == "AtMaximum"
    assert "scaling.maxReplicas holds it at 1" in cluster.report()["message"]
    cluster.say(load(1, 0))
    cluster.decide_and_apply()
    assert cluster.report()["reason"] == "WithinTarget"


def test_numbers_that_change_with_every_scrape_are_written_every_half_minute() -> None:
    cluster = ScalingCluster(maxReplicas=1)
    messages = []
    for num_waiting in range(11, 61):
        cluster.say(load(4, num_waiting))
        cluster.decide_and_apply()
        messages.append(cluster.report()["message"])
        cluster.step(2)
    assert len(set(messages)) == 4


def test_a_silent_pod_is_no_reason_for_more_replicas() -> None:
    cluster = ScalingCluster(minReplicas=2)
    cluster.say(load(4, 8), load(answered=False))
    assert cluster.decide_and_apply() == 2


def test_a_ready_pod_that_does_not_answer_counts_as_full() -> None:
    cluster = ScalingCluster(minReplicas=2, scaleDownStabilizationSeconds=0)
    cluster.change(scaling=cluster.service["spec"]["scaling"] | {"minReplicas": 1})
    cluster.say(load(), None)
    assert cluster.decide_and_apply() == 2
    cluster.say(load(), load(answered=False))
    assert cluster.decide_and_apply() == 2
    cluster.say(load(), load())
    assert cluster.decide_and_apply() == 1


def test_load_brings_replicas_and_quiet_takes_them_one_window_at_a_time() -> None:
    cluster = ScalingCluster(maxReplicas=3)
    cluster.say(load(4, 30))
    assert cluster.decide_and_apply() == 2
    cluster.step()
    cluster.say(load(4, 10), load(4, 10))
    assert cluster.decide_and_apply() == 3
    cluster.step()
    removed_at = []
    for _ in range(120):
        cluster.say(*(load() for _ in cluster.pods))
        before = len(cluster.pods)
        after = cluster.decide_and_apply()
        if after < before:
            removed_at.append((cluster.now - NOW).total_seconds())
        cluster.step()
    assert len(removed_at) == 2 and len(cluster.pods) == 1
    assert removed_at[1] - removed_at[0] >= 60
    assert cluster.report()["reason"] == "Idle"


def test_one_busy_moment_starts_the_window_anew() -> None:
    cluster = ScalingCluster(minReplicas=2)
    cluster.change(scaling=cluster.service["spec"]["scaling"] | {"minReplicas": 1})
    for seconds in range(0, 100, 2):
        cluster.say(load(4 if seconds == 50 else 0), load())
        assert cluster.decide_and_apply() == 2
        cluster.step()


def test_the_growth_of_the_queue_is_measured_over_ten_seconds() -> None:
    cluster = ScalingCluster(targetQueueDepth=100)
    growth = []
    for num_waiting in range(0, 60, 2):
        cluster.say(load(4, num_waiting))
        cluster.decide_and_apply()
        assert cluster.memory is not None
        growth.append(cluster.memory.growth_requests_per_second)
        cluster.step(2)
    changes = [late - early for early, late in zip(growth, growth[1:], strict=False)]
    assert growth[-1] == pytest.approx(1.0)
    assert sum(change != 0 for change in changes) <= 60 / 10


SCALING = ScalingCluster()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 12), st.sampled_from([2.0, 30.0])), max_size=12
    )
)
def test_the_same_picture_twice_never_turns_around(history: list[tuple[int, int, float]]) -> None:
    cluster = copy.deepcopy(SCALING)
    for running, waiting, seconds in history:
        cluster.say(*(load(running, waiting) for _ in cluster.pods))
        before = len(cluster.pods)
        first = cluster.decide_and_apply()
        second = cluster.decide_and_apply()
        assert (first - before) * (second - first) >= 0
        assert 1 <= second <= 4
        cluster.step(seconds)
