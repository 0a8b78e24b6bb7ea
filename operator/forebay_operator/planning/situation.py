"""What every planning step starts from: the picture, the parsed spec and the time."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forebay_operator.observed import Object, Observed, ScalingMemory
from forebay_operator.service import Service

Manifest = dict[str, Any]

REFRESH_SECONDS = 30.0
"""How seldom numbers that change with every scrape are written."""


@dataclass(frozen=True)
class Situation:
    """One InferenceService at one moment."""

    observed: Observed
    service: Service
    now: datetime

    @property
    def previous(self) -> Object:
        """The status that the last decision wrote; empty for a new object."""
        status: Object = self.observed.service.get("status") or {}
        return status

    def previous_condition(self, condition_type: str) -> Object:
        """A condition of the previous status; empty where there was none."""
        return find_condition(self.previous.get("conditions"), condition_type)

    def warnings_about(self, uid: str) -> tuple[Object, ...]:
        """Warning Events about one object, oldest first."""
        return tuple(
            event for event in self.observed.warnings if event["involvedObject"].get("uid") == uid
        )

    @property
    def memory(self) -> ScalingMemory:
        """What the last decision remembered; blank for the first."""
        return self.observed.memory or ScalingMemory(started_at=self.now)

    @property
    def seconds_to_refresh(self) -> float:
        """How long live numbers that are in status already stand before newer ones are written."""
        reported_at = self.memory.reported_at
        if reported_at is None:
            return 0.0
        return max(0.0, REFRESH_SECONDS - (self.now - reported_at).total_seconds())

    @property
    def may_refresh(self) -> bool:
        """Whether live numbers that are in status already may be replaced by newer ones."""
        return self.seconds_to_refresh == 0


def find_condition(conditions: Any, condition_type: str) -> Object:
    """The condition of a type in any object's list; empty where there is none."""
    found: Object = next(
        (entry for entry in conditions or () if entry.get("type") == condition_type), {}
    )
    return found
