"""Wake a ReplicaSet whose pods were refused: its own next try may be a quarter of an hour away.

The Deployment controller copies the Deployment's annotations onto its ReplicaSet, and a ReplicaSet
that changed is worked on at once, whatever its back-off.
"""

from dataclasses import dataclass
from datetime import datetime

from forebay_operator.planning.progress import Progress
from forebay_operator.planning.situation import Manifest

ANNOTATION = "forebay.dev/try-again"
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
    return Nudge({ANNOTATION: str(int(turn))}, NUDGE_SECONDS - passed)
