"""Bounds follow the clock: each schedule stands from its time until the next time of any."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from forebay_operator.planning import plan
from forebay_operator.planning.scaling.schedules import read_timetable
from forebay_operator.service import Scaling, Schedule
from observed_builder import child, condition_of, load, observed, service
from toy_cluster import ToyCluster

DAY = Schedule("0 8 * * 1-5", "Europe/Berlin", 3, 8)
NIGHT = Schedule("0 20 * * 1-5", "Europe/Berlin", None, 2)
RULE = Scaling(max_replicas=4, min_replicas=1, schedules=(DAY, NIGHT))


def berlin(text: str) -> datetime:
    """A winter's moment of January 2026, where the 1st is a Thursday."""
    return datetime.fromisoformat(f"2026-01-{text}:00+01:00")


@pytest.mark.parametrize(
    ("moment", "bounds", "following"),
    [
        ("01T12:00", (3, 8), ("01T20:00", (1, 2))),
        ("01T20:00", (1, 2), ("02T08:00", (3, 8))),
        ("02T07:59", (1, 2), ("02T08:00", (3, 8))),
        ("04T12:00", (1, 2), ("05T08:00", (3, 8))),
    ],
    ids=[
        "noon of a working day",
        "eight in the evening",
        "a minute before eight in the morning",
        "Friday's night lasts until Monday",
    ],
)
def test_the_schedule_whose_time_came_last_holds(
    moment: str, bounds: tuple[int, int], following: tuple[str, tuple[int, int]]
) -> None:
    table = read_timetable(RULE, berlin(moment))
    assert (table.rule.min_replicas, table.rule.max_replicas) == bounds
    assert table.next is not None and table.next_rule is not None
    assert table.next.at == berlin(following[0])
    assert (table.next_rule.min_replicas, table.next_rule.max_replicas) == following[1]


@pytest.mark.parametrize(
    ("schedules", "bounds"),
    [
        ((Schedule("0 8 * * *", "UTC", 2, 2), Schedule("0 8 * * *", "UTC", 3, 3)), (3, 3)),
        ((Schedule("0 8 * * *", "UTC", 3, 3), Schedule("0 8 * * *", "UTC", 2, 2)), (2, 2)),
        ((Schedule("0 8 * * *", "UTC", 2, 2), Schedule("0 9 * * *", "UTC")), (1, 4)),
        ((Schedule("0 9 * * *", "Asia/Tokyo", 2, 2), Schedule("0 9 * * *", "UTC", 3, 3)), (3, 3)),
        ((), (1, 4)),
    ],
    ids=[
        "of two at one time the later one in the list",
        "whatever it says",
        "one without bounds gives scaling's own back",
        "zones differ",
        "without schedules scaling's own",
    ],
)
def test_who_wins(schedules: tuple[Schedule, ...], bounds: tuple[int, int]) -> None:
    rule = Scaling(max_replicas=4, min_replicas=1, schedules=schedules)
    table = read_timetable(rule, datetime.fromisoformat("2026-01-01T12:00:00Z"))
    assert (table.rule.min_replicas, table.rule.max_replicas) == bounds


def test_the_clock_is_looked_at_when_the_next_time_comes_and_every_few_minutes() -> None:
    def wait(moment: str) -> float | None:
        return read_timetable(RULE, berlin(moment)).look_again_seconds(berlin(moment))

    assert (wait("01T12:00"), wait("01T19:59")) == (300, 60)
    assert (
        read_timetable(Scaling(4), berlin("01T12:00")).look_again_seconds(berlin("01T12:00"))
        is None
    )


def scheduled(*schedules: dict[str, Any]) -> ToyCluster:
    """At noon, UTC."""
    scaling = {"maxReplicas": 4, "scaleDownStabilizationSeconds": 60, "schedules": list(schedules)}
    cluster = ToyCluster(service(scaling=scaling, engine={"maxNumSeqs": 4}))
    cluster.settle()
    return cluster


def pass_time(cluster: ToyCluster, **time: int) -> int:
    cluster.now += timedelta(**time)
    cluster.loads = {one["metadata"]["uid"]: load() for one in cluster.pods}
    decided = cluster.decide()
    cluster.carry_out(decided)
    cluster.step()
    deployment = child(decided, "Deployment")
    return deployment["spec"]["replicas"] if deployment else -1


MORNING = {"cron": "0 13 * * *", "minReplicas": 3}
EVENING = {"cron": "0 14 * * *", "maxReplicas": 1}


def test_replicas_follow_the_bounds_at_their_times() -> None:
    cluster = scheduled(MORNING, EVENING)
    assert pass_time(cluster, minutes=59) == 1
    assert pass_time(cluster, minutes=1) == 3
    status = cluster.service["status"]["scaling"]
    assert status["message"] == "1 became 3: scaling.schedules[0].minReplicas."
    assert status["schedule"] == {
        "cron": "0 13 * * *",
        "timeZone": "UTC",
        "since": "2026-01-01T13:00:00Z",
    }
    assert status["nextSchedule"] == {
        "cron": "0 14 * * *",
        "timeZone": "UTC",
        "at": "2026-01-01T14:00:00Z",
        "minReplicas": 1,
        "maxReplicas": 1,
    }
    assert pass_time(cluster, hours=1) == 1
    assert "scaling.schedules[1].maxReplicas" in cluster.service["status"]["scaling"]["message"]


def test_a_service_that_is_created_in_its_evening_is_in_its_evening() -> None:
    cluster = scheduled({"cron": "0 11 * * *", "minReplicas": 2, "maxReplicas": 2})
    assert len(cluster.pods) == 2


def test_a_schedule_that_cannot_be_is_told_and_what_runs_is_left_alone() -> None:
    schedules = [MORNING, {"cron": "0 8 * * *", "timeZone": "Europe/Atlantis"}]
    decided = plan(
        observed(service(scaling={"maxReplicas": 4, "schedules": schedules})),
        datetime.fromisoformat("2026-01-01T12:00:00Z"),
    )
    said = condition_of(decided, "Ready")
    assert (said["reason"], decided.children) == ("SpecInvalid", ())
    assert said["message"] == (
        "spec.scaling.schedules[1]: no time zone is called 'Europe/Atlantis'; write minute, hour, "
        'day of month, month and day of week, such as "0 8 * * 1-5", and a time zone such as '
        "Europe/Berlin."
    )
