"""What Kubernetes backed off from for minutes is tried again soon after its cause is mended.

A ReplicaSet whose pods were refused makes its own next try up to a quarter of an hour later. The
Deployment controller copies the Deployment's annotations onto it, and a ReplicaSet that changed is
worked on at once, whatever its back-off.
"""

from dataclasses import dataclass
from datetime import datetime

from forebay_operator.planning.progress import Progress
from forebay_operator.planning.situation import Manifest

NUDGE_ANNOTATION = "forebay.dev/try-again"
NUDGE_SECONDS = 30


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
