"""How many replicas: the user's number, or the rule of the queue.

The rule is pure arithmetic over what the pods say; what it must remember between decisions travels
in ScalingMemory and is lost with the operator on purpose: nothing shrinks before it has watched for
one full window.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime

from forebay_operator.observed import ScalingMemory
from forebay_operator.planned import Tally
from forebay_operator.planning.pods import created_at, is_ready, pod_condition
from forebay_operator.planning.scaling.inputs import Queue, read_inputs, to_queue
from forebay_operator.planning.scaling.report import Decision, report_scaling
from forebay_operator.planning.scaling.schedules import Timetable, read_timetable
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.timestamps import parse_time
from forebay_operator.service import Scaling

BUSY_SHARE = 0.8
"""How full the remaining pods may be after one is removed."""
GROWTH_SAMPLE_SECONDS = 10.0
"""Growth is measured over at least this long: a burst is not a trend."""


@dataclass(frozen=True)
class ScalingStep:
    """The replicas that the Deployment gets, `status.scaling`, and what to remember."""

    num_replicas: int
    memory: ScalingMemory
    num_held_back: int = 0
    """How many more the spec asks for than the limit allows."""
    status: Manifest | None = None
    decision: Decision | None = None
    """Only where the replicas change."""
    look_again_seconds: float | None = None

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The decision, for the metric that counts them."""
        if self.decision is None:
            return ()
        return (Tally("scale_decisions", {"reason": self.decision.reason}),)


def plan_replicas(situation: Situation, max_num_seqs: int, limit: int | None = None) -> ScalingStep:
    """The replicas wanted now; limit is the most that a VRAMQuota grants."""
    if situation.service.scaling is None:
        wanted = situation.service.replicas
        num_replicas = wanted if limit is None else min(wanted, limit)
        return ScalingStep(num_replicas, situation.memory, wanted - num_replicas)
    written = read_timetable(situation.service.scaling, situation.now)
    timetable = written.hold(limit)
    current = _current_replicas(situation, timetable.rule)
    inputs = read_inputs(situation, current)
    decision, memory = _decide(situation, timetable, to_queue(inputs, max_num_seqs), max_num_seqs)
    has_changed = decision.num_replicas != current
    if has_changed:
        memory = replace(memory, idle_since=None)
    report = report_scaling(situation, decision, timetable, inputs)
    waits = (
        _seconds_to_shrink(memory, timetable.rule, situation.now),
        timetable.look_again_seconds(situation.now),
        report.look_again_seconds,
    )
    return ScalingStep(
        decision.num_replicas,
        memory,
        max(0, written.rule.min_replicas - decision.num_replicas),
        report.status,
        decision if has_changed and decision.reason else None,
        min((wait for wait in waits if wait is not None), default=None),
    )


def _decide(
    situation: Situation, timetable: Timetable, queue: Queue, max_num_seqs: int
) -> tuple[Decision, ScalingMemory]:
    """The rule's word, and what it learnt; without a Deployment there is nothing to learn."""
    rule, memory = timetable.rule, situation.memory
    if situation.observed.deployment is None:
        bounded = min(max(queue.num_replicas, rule.min_replicas), rule.max_replicas)
        return Decision(bounded), memory
    memory = _measure(situation, memory, queue)
    memory = _watch_idleness(memory, queue, rule, max_num_seqs, situation.now)
    return decide(queue, timetable, memory, situation.now), memory


def _current_replicas(situation: Situation, rule: Scaling) -> int:
    """What was decided last, whatever became of the Deployment since; at first what runs."""
    told = (situation.previous.get("scaling") or {}).get("desiredReplicas")
    if told is not None:
        return int(told)
    deployment = situation.observed.deployment
    if deployment is None:
        return rule.min_replicas
    running: int = deployment["spec"].get("replicas", 1)
    return running


def decide(queue: Queue, timetable: Timetable, memory: ScalingMemory, now: datetime) -> Decision:
    """Up by what waits, down by one after a full idle window, always within the bounds."""
    rule, current = timetable.rule, queue.num_replicas
    wanted = replicas_for_queue(queue, rule, memory)
    bounded = min(max(current, rule.min_replicas), rule.max_replicas)
    if bounded != current:
        bound = "minReplicas" if bounded > current else "maxReplicas"
        return Decision(
            bounded, "WithinBounds", f"{current} became {bounded}: {timetable.path_of(bound)}."
        )
    if wanted > current:
        bounded = min(wanted, rule.max_replicas)
        reason = "AtMaximum" if bounded == current else "QueueAboveTarget"
        return Decision(bounded, reason, _numbers(queue, timetable, memory, wanted))
    if _seconds_to_shrink(memory, rule, now) == 0 and current > rule.min_replicas:
        return Decision(
            current - 1,
            "Idle",
            f"Nothing waited and {_count(current - 1, 'replica')} would have been enough for "
            f"{rule.window_seconds} s; running now: {_count(queue.num_running, 'request')}.",
        )
    return Decision(current)


def replicas_for_queue(queue: Queue, rule: Scaling, memory: ScalingMemory) -> int:
    """Enough that the expected queue is at most the target for each, at most doubled."""
    target, current = rule.target_queue_depth, queue.num_replicas
    expected = queue.num_waiting + memory.growth_requests_per_second * memory.startup_seconds
    uncovered = max(0.0, expected - target * current)
    return min(current + math.ceil(uncovered / target), 2 * max(1, current))


def can_shrink(queue: Queue, max_num_seqs: int) -> bool:
    """Whether one replica fewer would be enough now."""
    room = BUSY_SHARE * (queue.num_replicas - 1) * max_num_seqs
    return queue.num_waiting == 0 and queue.num_running <= room


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _numbers(queue: Queue, timetable: Timetable, memory: ScalingMemory, wanted: int) -> str:
    rule = timetable.rule
    ready = f"{queue.num_ready} ready"
    pending = f" and {queue.num_pending} pending" if queue.num_pending else ""
    replicas = "replica" if queue.num_replicas == 1 else "replicas"
    text = (
        f"{queue.num_waiting} waiting over {ready}{pending} {replicas}, "
        f"target {rule.target_queue_depth}"
    )
    growth = memory.growth_requests_per_second * memory.startup_seconds
    if growth >= 1:
        text += f", {growth:.0f} more expected while one starts"
    if wanted > rule.max_replicas:
        text += f"; {timetable.path_of('maxReplicas')} holds it at {rule.max_replicas}"
    return f"{text}."


def _measure(situation: Situation, memory: ScalingMemory, queue: Queue) -> ScalingMemory:
    """Measure a pod's start-up and the growth of the queue; an empty queue does not grow."""
    memory = replace(memory, startup_seconds=_startup_seconds(situation, memory))
    if queue.num_waiting == 0:
        memory = replace(memory, growth_requests_per_second=0.0)
    if memory.sampled_at is None:
        return replace(memory, sampled_at=situation.now, sampled_waiting=queue.num_waiting)
    elapsed = (situation.now - memory.sampled_at).total_seconds()
    if elapsed < GROWTH_SAMPLE_SECONDS:
        return memory
    growth = max(0.0, (queue.num_waiting - memory.sampled_waiting) / elapsed)
    return replace(
        memory,
        growth_requests_per_second=growth,
        sampled_at=situation.now,
        sampled_waiting=queue.num_waiting,
    )


def _startup_seconds(situation: Situation, memory: ScalingMemory) -> float:
    """From creation to readiness, of the quickest pod: one that was unready since looks slower."""
    took = [
        (parse_time(moment) - created_at(pod)).total_seconds()
        for pod in situation.observed.pods
        if is_ready(pod) and (moment := pod_condition(pod, "Ready").get("lastTransitionTime"))
    ]
    return max(0.0, min(took)) if took else memory.startup_seconds


def _watch_idleness(
    memory: ScalingMemory, queue: Queue, rule: Scaling, max_num_seqs: int, now: datetime
) -> ScalingMemory:
    if queue.num_replicas <= rule.min_replicas or not can_shrink(queue, max_num_seqs):
        return replace(memory, idle_since=None)
    return memory if memory.idle_since is not None else replace(memory, idle_since=now)


def _seconds_to_shrink(memory: ScalingMemory, rule: Scaling, now: datetime) -> float | None:
    """What is left of a whole idle window, all of which was watched; None while none runs."""
    if memory.idle_since is None:
        return None
    start = max(memory.idle_since, memory.started_at)
    return max(0.0, rule.window_seconds - (now - start).total_seconds())
