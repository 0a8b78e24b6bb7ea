"""What the Deployment is told beside its template: how fast that may reach the pods, and a nudge.

Fast means with one pod more, or one pod less, at a time. The nudge wakes a ReplicaSet whose pods
were refused: its own next try may be a quarter of an hour away. The Deployment controller copies
the Deployment's annotations onto it, and a ReplicaSet that changed is worked on at once, whatever
its back-off.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from forebay_operator.observed import Object
from forebay_operator.planning.pods import is_leaving, is_ready, pod_condition, template_hash
from forebay_operator.planning.progress import Progress
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.planning.timestamps import seconds_since

Pace = Literal["Surge", "Replace"]

NUDGE_ANNOTATION = "forebay.dev/try-again"
NUDGE_SECONDS = 30
SURGE_PATIENCE_SECONDS = 30.0
"""How long a surge pod may find no node before an old pod makes room."""


@dataclass(frozen=True)
class RolloutStep:
    """The pace, and for status why it is not the one that was tried first."""

    pace: Pace = "Surge"
    explanation: str = ""
    look_again_seconds: float | None = None


def choose_rollout_step(situation: Situation, wanted_hash: str) -> RolloutStep:
    """Surge unless the user says Replace, or Auto finds that surging does not get anywhere."""
    strategy = situation.service.rollout.strategy
    if strategy != "Auto":
        return RolloutStep(strategy)
    pods = [pod for pod in situation.observed.pods if not is_leaving(pod)]
    old = [pod for pod in pods if template_hash(pod) != wanted_hash]
    if not old:
        return RolloutStep()
    if not any(is_ready(pod) for pod in old):
        return RolloutStep("Replace", "No pod of the old template is ready, so none is kept for it")
    if _is_replacing(situation.observed.deployment, wanted_hash):
        return RolloutStep("Replace", _NO_ROOM)
    return _judge_surge(situation, [pod for pod in pods if template_hash(pod) == wanted_hash])


_NO_ROOM = (
    f"No node took a surge pod for {SURGE_PATIENCE_SECONDS:.0f} seconds, so a pod is drained "
    "before its successor starts"
)


def _judge_surge(situation: Situation, new: list[Object]) -> RolloutStep:
    waits = [_unschedulable_seconds(situation, pod) for pod in new]
    longest = max(waits, default=0.0)
    if longest >= SURGE_PATIENCE_SECONDS:
        return RolloutStep("Replace", _NO_ROOM)
    return RolloutStep(look_again_seconds=SURGE_PATIENCE_SECONDS - longest if longest else None)


_ROOM = (
    "Insufficient ",
    "Too many pods",
    "anti-affinity",
    "free ports",
    "volume count",
    "ReadWriteOncePod",
)
"""What the scheduler says where an old pod that goes may be what a new one waits for."""


def _unschedulable_seconds(situation: Situation, pod: Object) -> float:
    """How long a pod has waited for room; a node that does not exist is worth no old pod."""
    scheduled = pod_condition(pod, "PodScheduled")
    if scheduled.get("reason") != "Unschedulable":
        return 0.0
    if not any(words in scheduled.get("message", "") for words in _ROOM):
        return 0.0
    return max(0.001, seconds_since(scheduled["lastTransitionTime"], situation.now))


def _is_replacing(deployment: Object | None, wanted_hash: str) -> bool:
    """Once it replaces, a rollout goes on so: each new pod would find no node for a surge again."""
    if deployment is None or template_hash(deployment["spec"]["template"]) != wanted_hash:
        return False
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return rolling.get("maxSurge") in (0, "0")


@dataclass(frozen=True)
class Nudge:
    """Annotations for the Deployment, and when they change next."""

    annotations: Manifest
    look_again_seconds: float | None = None


def choose_nudge(progress: Progress, now: datetime) -> Nudge:
    """An annotation that changes every half minute while pods are refused; none otherwise."""
    if progress.creation_cause is None:
        return Nudge({})
    turn, passed = divmod(now.timestamp(), NUDGE_SECONDS)
    return Nudge({NUDGE_ANNOTATION: str(int(turn))}, NUDGE_SECONDS - passed)
