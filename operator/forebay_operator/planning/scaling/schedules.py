"""Which bounds hold now: those of `spec.scaling`, or those of the schedule whose time came last.

A schedule needs no memory: its last time is computed, so a service that is created in the evening
is in its evening, and an operator that was down over a time misses nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from forebay_operator.cron import find_fires
from forebay_operator.planning.situation import Manifest
from forebay_operator.planning.timestamps import to_time
from forebay_operator.service import Scaling, Schedule

LONGEST_SLEEP_SECONDS = 300.0
"""Clocks are set now and then: a sleep that ends early finds out."""


@dataclass(frozen=True)
class Turn:
    """A time at which a schedule's bounds take over."""

    number: int
    """Its place in `spec.scaling.schedules`."""
    schedule: Schedule
    at: datetime

    def to_status(self, at: str) -> Manifest:
        """As the status shows it, with its time under a name."""
        schedule = self.schedule
        return {"cron": schedule.cron, "timeZone": schedule.time_zone, at: to_time(self.at)}


@dataclass(frozen=True)
class Timetable:
    """The rule with the bounds that hold now, where they come from, and what comes next."""

    rule: Scaling
    last: Turn | None = None
    next: Turn | None = None
    next_rule: Scaling | None = None
    is_held: bool = False
    """Whether something other than the spec holds the replicas below its bounds."""

    def hold(self, limit: int | None) -> "Timetable":
        """The same, under the most replicas that a VRAMQuota grants; None is no limit."""
        if limit is None or limit >= self.rule.max_replicas:
            return self
        least = min(self.rule.min_replicas, limit)
        return replace(
            self, rule=replace(self.rule, min_replicas=least, max_replicas=limit), is_held=True
        )

    def path_of(self, bound: str) -> str:
        """Where `minReplicas` or `maxReplicas` is written."""
        if self.is_held and bound == "maxReplicas":
            return "the namespace's VRAMQuota"
        if self.last is None:
            return f"scaling.{bound}"
        schedule = self.last.schedule
        written = {"minReplicas": schedule.min_replicas, "maxReplicas": schedule.max_replicas}
        if written[bound] is None:
            return f"scaling.{bound}"
        return f"scaling.schedules[{self.last.number}].{bound}"

    def look_again_seconds(self, now: datetime) -> float | None:
        """When to look at the clock next."""
        if self.next is None:
            return None
        return min((self.next.at - now).total_seconds(), LONGEST_SLEEP_SECONDS)

    def to_status(self) -> Manifest:
        """The bounds in force, and the schedules of now and next."""
        status: Manifest = {
            "minReplicas": self.rule.min_replicas,
            "maxReplicas": self.rule.max_replicas,
        }
        if self.last is not None:
            status["schedule"] = self.last.to_status("since")
        if self.next is not None and self.next_rule is not None:
            status["nextSchedule"] = self.next.to_status("at") | {
                "minReplicas": self.next_rule.min_replicas,
                "maxReplicas": self.next_rule.max_replicas,
            }
        return status


def read_timetable(rule: Scaling, now: datetime) -> Timetable:
    """Look the bounds up; where two schedules have the same time, the one written later wins."""
    past: list[Turn] = []
    future: list[Turn] = []
    for number, schedule in enumerate(rule.schedules):
        last, following = find_fires(schedule.cron, schedule.time_zone, now)
        past += [Turn(number, schedule, last)] if last else []
        future += [Turn(number, schedule, following)] if following else []
    current = max(past, key=lambda turn: (turn.at, turn.number), default=None)
    coming = min(future, key=lambda turn: (turn.at, -turn.number), default=None)
    return Timetable(
        rule=_bound(rule, current) or rule,
        last=current,
        next=coming,
        next_rule=_bound(rule, coming),
    )


def _bound(rule: Scaling, turn: Turn | None) -> Scaling | None:
    if turn is None:
        return None
    least, most = turn.schedule.min_replicas, turn.schedule.max_replicas
    return replace(
        rule,
        min_replicas=rule.min_replicas if least is None else least,
        max_replicas=rule.max_replicas if most is None else most,
    )
