"""How drains end: each pod that leaves while it serves is followed until it is gone, then judged.

`finished` when it gave back what it held, `forced` when something was cut: by its own time-out, by
the kubelet at the deadline, or because its node went away under it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from forebay_operator.objects import uid_of
from forebay_operator.observed import LeavingPod, Object
from forebay_operator.planned import Note, Tally
from forebay_operator.planning.children.pod_template import STOP_MARGIN_SECONDS
from forebay_operator.planning.draining.departure import explain_departure
from forebay_operator.planning.pods import (
    RUNTIME_CONTAINER,
    container_status,
    is_finished,
    is_leaving,
    load_of,
    pod_condition,
    pod_name,
)
from forebay_operator.planning.situation import Situation
from forebay_operator.planning.timestamps import parse_time

CUT_WORDS = "answers cut: "
"""How the runtime's last words begin where its drain ended before its answers did."""


@dataclass(frozen=True)
class DrainStep:
    """Who is followed from now on, and what ended since the last decision."""

    leaving: dict[str, LeavingPod]
    tallies: tuple[Tally, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class _End:
    """How one drain ended; `words` say what was cut, and are empty where nothing was."""

    name: str
    words: str = ""


def follow_drains(situation: Situation, wanted_hash: str) -> DrainStep:
    """Compare the pods that leave with those that did so before."""
    before = situation.memory.leaving
    leaving, ends, notes = {}, list(_vanished(situation)), []
    for pod in situation.observed.pods:
        uid = uid_of(pod)
        known = before.get(uid) or _begin(situation, pod)
        if known is None:
            continue
        if uid not in before:
            notes += _announce(situation, pod, wanted_hash)
        known = _listen(situation, pod, known)
        end = None if known.is_judged else _judge(situation, pod, known)
        ends += [end] if end else []
        leaving[uid] = replace(known, is_judged=known.is_judged or end is not None)
    return DrainStep(
        leaving,
        tuple(_count(end) for end in ends),
        (*notes, *(Note("Warning", "DrainCutShort", end.words) for end in ends if end.words)),
    )


def _begin(situation: Situation, pod: Object) -> LeavingPod | None:
    """Follow a pod that leaves while its container runs: another has nothing to drain.

    A node that shuts down ends its pods without deleting them; what it ended before this operator
    began was another's to count.
    """
    container = container_status(pod, RUNTIME_CONTAINER)
    if is_leaving(pod) and container.get("started"):
        # Whoever deletes it without any time to drain has seen its end: the kubelet, mostly.
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            return None
        deadline = parse_time(pod["metadata"]["deletionTimestamp"])
        return LeavingPod(pod_name(pod), deadline - timedelta(seconds=STOP_MARGIN_SECONDS))
    end = (container.get("state") or {}).get("terminated") or {}
    is_disrupted = pod_condition(pod, "DisruptionTarget").get("status") == "True"
    if not is_finished(pod) or not is_disrupted or not end.get("finishedAt"):
        return None
    ended_at = parse_time(end["finishedAt"])
    is_news = ended_at > situation.memory.started_at
    return LeavingPod(pod_name(pod), ended_at) if is_news else None


def _listen(situation: Situation, pod: Object, known: LeavingPod) -> LeavingPod:
    load = load_of(pod, situation.observed.loads)
    return known if load is None else replace(known, num_held=load.num_running + load.num_waiting)


def _judge(situation: Situation, pod: Object, known: LeavingPod) -> _End | None:
    """By what its container left behind; None while it runs."""
    if explain_departure(situation, pod, "").reason == "NodeGone":
        return _End(known.name, _tell_loss(known, "its node went away"))
    state = container_status(pod, RUNTIME_CONTAINER).get("state") or {}
    end = state.get("terminated")
    if end is None:
        return None
    _, cut, number = end.get("message", "").partition(CUT_WORDS)
    if cut:
        timeout = situation.service.drain.timeout_seconds
        words = (
            f"Pod {known.name} cut what it still held ({number.strip()}) when its {timeout} s of "
            "drain.timeoutSeconds were over; raise it if answers take longer."
        )
        return _End(known.name, words)
    if end.get("exitCode", 0) == 0:
        return _End(known.name)
    return _End(known.name, _tell_loss(known, f"it was ended with exit code {end['exitCode']}"))


def _vanished(situation: Situation) -> Iterator[_End]:
    """Pods that are gone before anybody saw how they ended are judged by the time."""
    present = {uid_of(pod) for pod in situation.observed.pods}
    for uid, known in situation.memory.leaving.items():
        if uid in present or known.is_judged:
            continue
        is_late = situation.now >= known.stops_at and known.num_held != 0
        yield _End(known.name, _tell_loss(known, "its time was over") if is_late else "")


def _tell_loss(known: LeavingPod, why: str) -> str:
    held = "" if known.num_held is None else f", and held {known.num_held} requests when last asked"
    return f"Pod {known.name} did not finish what it held: {why}{held}."


def _announce(situation: Situation, pod: Object, wanted_hash: str) -> list[Note]:
    """What the owner of the service did not do is worth an Event."""
    departure = explain_departure(situation, pod, wanted_hash)
    if not departure.is_disruption:
        return []
    said = pod_condition(pod, "DisruptionTarget").get("message", "")
    words = f"Pod {pod_name(pod)} leaves, because {departure.clause}"
    return [Note("Normal", departure.reason, f"{words} ({said})." if said else f"{words}.")]


def _count(end: _End) -> Tally:
    return Tally("drains", {"outcome": "forced" if end.words else "finished"})
