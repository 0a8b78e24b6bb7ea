"""How fast a template may reach the pods: with one pod more, with one pod less, or all at once.

A pod that serves is given up only for one that is ready, or, where there is no room for both, one
at a time and after that was announced. Pods that only fail are kept for nobody.
"""

from dataclasses import dataclass

from forebay_operator.objects import uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.causes.diagnosis import diagnose_pod
from forebay_operator.planning.causes.patient import Patient
from forebay_operator.planning.children.serving import Pace
from forebay_operator.planning.pods import (
    RUNTIME_CONTAINER,
    is_leaving,
    seconds_overdue,
    template_hash,
)
from forebay_operator.planning.rollout.outdated import list_outdated
from forebay_operator.planning.rollout.progress import Progress
from forebay_operator.planning.rollout.room import seconds_over_quota, seconds_without_room
from forebay_operator.planning.situation import Situation

REPLACING = "Replacing"
"""The reason of `Progressing` that announces a pod drained before its successor starts."""
SURGE_PATIENCE_SECONDS = 30.0
"""How long there may be no room for a surge pod before an old pod makes some."""
_ANNOUNCED_SECONDS = 1.0
_LATE_SECONDS = 30.0
"""How long after its deadline a pod that leaves is still awaited: on a node that went silent it
never goes."""


@dataclass(frozen=True)
class RolloutStep:
    """The pace, and what status must say of it."""

    pace: Pace = "Surge"
    explanation: str = ""
    """That pods are drained before their successors start, and why; empty while they are not."""
    makes_room: bool = False
    """A pod is about to go or on its way out: that its successor finds no room is no failure."""
    look_again_seconds: float | None = None


def choose_rollout_step(situation: Situation, wanted_hash: str, progress: Progress) -> RolloutStep:
    """Surge unless nothing old serves, the user says Replace, or Auto finds no room for more."""
    strategy = situation.service.rollout.strategy
    old = list_outdated(situation, wanted_hash)
    if not old:
        return RolloutStep("Replace" if strategy == "Replace" else "Surge")
    staying = [pod for pod in old if not is_leaving(pod)]
    if staying and all(_is_broken(situation, pod) for pod in staying):
        return RolloutStep("Restart")
    if strategy == "Replace":
        return _replace(situation, progress)
    is_replacing = _is_replacing(situation.observed.deployment, wanted_hash)
    if strategy == "Surge" or not (staying or is_replacing) or _fails(progress):
        return RolloutStep()
    if is_replacing and (progress.num_wanted > 1 or not staying):
        return _replace(situation, progress)
    return _judge_surge(situation, wanted_hash, progress)


def _fails(progress: Progress) -> bool:
    """A new pod fails for another reason than room: no pod that serves is given up for it."""
    return progress.pod_cause is not None and progress.pod_cause.reason != "Unschedulable"


def _is_broken(situation: Situation, pod: Object) -> bool:
    """It never came up and fails; one that still starts, or was ready just now, may serve soon."""
    patient = Patient(pod, RUNTIME_CONTAINER, situation)
    return not patient.has_started and diagnose_pod(patient) is not None


def _judge_surge(situation: Situation, wanted_hash: str, progress: Progress) -> RolloutStep:
    """Without room for long enough, say that pods will be replaced; once that was said, do it."""
    outdated = set(map(uid_of, list_outdated(situation, wanted_hash)))
    staying = [pod for pod in situation.observed.pods if not is_leaving(pod)]
    old = [pod for pod in staying if uid_of(pod) in outdated]
    new = [pod for pod in staying if uid_of(pod) not in outdated]
    waits = (seconds_without_room(situation, pod, old) for pod in new)
    waited = max((*waits, seconds_over_quota(progress)))
    if waited < SURGE_PATIENCE_SECONDS:
        return RolloutStep(look_again_seconds=SURGE_PATIENCE_SECONDS - waited if waited else None)
    replacing = _replace(situation, progress)
    if _is_announced(situation, progress):
        return replacing
    return RolloutStep("Surge", replacing.explanation, True, _ANNOUNCED_SECONDS)


def _is_announced(situation: Situation, progress: Progress) -> bool:
    """Whether status has said what is about to happen, of this generation."""
    said = situation.previous_condition("Progressing")
    is_of_now = said.get("observedGeneration") == situation.service.generation
    return is_of_now and said["reason"] == REPLACING and _consequence(progress) in said["message"]


def _replace(situation: Situation, progress: Progress) -> RolloutStep:
    leaving = filter(is_leaving, situation.observed.pods)
    waits = (_LATE_SECONDS - seconds_overdue(pod, situation.now) for pod in leaving)
    longest = max((wait for wait in waits if wait > 0), default=None)
    makes_room = longest is not None or progress.num_ready >= progress.num_wanted
    sentence = f"{_reason(situation)}, so {_consequence(progress)}"
    return RolloutStep("Replace", sentence, makes_room, longest)


def _reason(situation: Situation) -> str:
    generation = situation.service.generation
    if situation.service.rollout.strategy == "Replace":
        return f"Generation {generation} rolls out by spec.rollout.strategy Replace"
    return (
        f"There is no room for a surge pod of generation {generation} "
        f"(spec.rollout.strategy is Auto, which waits {SURGE_PATIENCE_SECONDS:.0f} seconds; Surge "
        "would wait for ever)"
    )


def _consequence(progress: Progress) -> str:
    if progress.num_wanted == 1:
        return "the only replica is drained before its successor starts, and nothing serves between"
    return "one replica at a time is drained before its successor starts"


def _is_replacing(deployment: Object | None, wanted_hash: str) -> bool:
    """Once it replaces, a rollout goes on so: the next pod would find no room for a surge again."""
    if deployment is None or template_hash(deployment["spec"]["template"]) != wanted_hash:
        return False
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return (rolling.get("maxSurge"), rolling.get("maxUnavailable")) == (0, 1)
