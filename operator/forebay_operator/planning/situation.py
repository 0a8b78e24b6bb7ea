"""What every planning step starts from: the picture, the parsed spec and the time."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forebay_operator.observed import Object, Observed
from forebay_operator.service import Service

Manifest = dict[str, Any]


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
        return tuple(event for event in self.observed.warnings if _subject_uid(event) == uid)


def find_condition(conditions: Any, condition_type: str) -> Object:
    """The condition of a type in any object's list; empty where there is none."""
    found: Object = next(
        (entry for entry in conditions or () if entry.get("type") == condition_type), {}
    )
    return found


def _subject_uid(event: Object) -> str:
    subject = event.get("involvedObject") or event.get("regarding") or {}
    uid: str = subject.get("uid", "")
    return uid


def event_text(event: Object) -> str:
    """What an Event says, in either of Kubernetes' two Event kinds."""
    text: str = event.get("message") or event.get("note") or ""
    return text
