"""What Kubernetes backed off from for minutes is tried again soon after its cause is mended.

A ReplicaSet whose pods were refused makes its own next try up to a quarter of an hour later. The
Deployment controller copies the Deployment's annotations onto it, and a ReplicaSet that changed is
worked on at once, whatever its back-off.
"""

from dataclasses import dataclass
from typing import Any

from forebay_operator.planning.children.metadata import fingerprint
from forebay_operator.planning.rollout.progress import Progress
from forebay_operator.planning.situation import Manifest, Situation

NUDGE_ANNOTATION = "forebay.dev/try-again"
SOON_SECONDS = 10
SELDOM_SECONDS = 60
ANXIOUS_SECONDS = 600
"""For so long somebody may be at work on it, and hears the answer soon."""


@dataclass(frozen=True)
class Nudge:
    """Annotations for the Deployment, and when they change next."""

    annotations: Manifest
    look_again_seconds: float | None = None


def choose_nudge(situation: Situation, progress: Progress) -> Nudge:
    """An annotation that changes while pods are refused; none otherwise.

    It changes with the quotas, where they can be read; of all else that refuses pods nothing can be
    seen but that the next one is not refused, so it changes with time.
    """
    if progress.creation_cause is None:
        return Nudge({})
    is_new = progress.refused_seconds < ANXIOUS_SECONDS
    quotas = situation.observed.resource_quotas
    seconds = SELDOM_SECONDS if quotas or not is_new else SOON_SECONDS
    turn, passed = divmod(situation.now.timestamp(), seconds)
    state = fingerprint([_read(quota) for quota in quotas], 6) if quotas else "0"
    return Nudge({NUDGE_ANNOTATION: f"{int(turn)}-{seconds}-{state}"}, seconds - passed)


def _read(quota: Any) -> list[Any]:
    status = quota.get("status") or {}
    return [quota["metadata"]["name"], status.get("hard"), status.get("used")]
