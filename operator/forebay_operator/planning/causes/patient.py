"""A pod that may ail, with what is known around it: what the checks of `diagnosis` look at."""

from dataclasses import dataclass
from datetime import datetime

from forebay_operator.objects import uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.pods import container_status, is_ready, pod_condition, pod_name
from forebay_operator.planning.situation import Situation
from forebay_operator.planning.timestamps import parse_time
from forebay_operator.service import Service

NOT_READY_SECONDS = 10
"""A started pod that fails its readiness probe this long is worth a word."""


@dataclass(frozen=True)
class Patient:
    """One container of a pod, at one moment."""

    pod: Object
    container: str
    situation: Situation

    @property
    def service(self) -> Service:
        return self.situation.service

    @property
    def name(self) -> str:
        return pod_name(self.pod)

    @property
    def status(self) -> Object:
        return container_status(self.pod, self.container)

    @property
    def has_started(self) -> bool:
        """Whether it passed its startup probe in this run."""
        return bool(self.status.get("started"))

    @property
    def waiting(self) -> Object:
        waiting: Object = (self.status.get("state") or {}).get("waiting") or {}
        return waiting

    @property
    def ended(self) -> Object:
        """How its container ended, now or the last time before this one; empty if it never did."""
        state, last = self.status.get("state") or {}, self.status.get("lastState") or {}
        ended: Object = state.get("terminated") or last.get("terminated") or {}
        return ended

    @property
    def has_served(self) -> bool:
        """Whether the run that ended was ready once.

        A pod is unready from its birth: if it became so later than that run began, it served.
        """
        unready_at = pod_condition(self.pod, "Ready").get("lastTransitionTime")
        started_at = self.ended.get("startedAt")
        if not unready_at or not started_at:
            return False
        return parse_time(unready_at) > parse_time(started_at)

    @property
    def unready_since(self) -> datetime | None:
        """Since when it is unready although it started; None where nobody tells.

        A pod is unready from its birth, and the moment at which it has started is none of its
        conditions. But until it is ready nothing is written of it after that moment.
        """
        fields = self.pod["metadata"].get("managedFields") or ()
        told = [one["time"] for one in fields if one.get("subresource") == "status"]
        unready_at = pod_condition(self.pod, "Ready").get("lastTransitionTime")
        return max(map(parse_time, [*told, unready_at])) if unready_at else None

    def last_warning(self, *reasons: str, about: str = "") -> str:
        """What the newest warning of these reasons says; of those that begin so, if any must."""
        warnings = self.situation.warnings_about(uid_of(self.pod))
        texts = [event.get("message", "") for event in warnings if event.get("reason") in reasons]
        return next((text for text in reversed(texts) if text.startswith(about)), "")


def seconds_until_ailing(patient: Patient) -> float | None:
    """When a pod that has just become unready has been so for long enough to be told."""
    since = patient.unready_since
    if since is None or is_ready(patient.pod) or not patient.has_started:
        return None
    unready_seconds = (patient.situation.now - since).total_seconds()
    return max(0.0, NOT_READY_SECONDS - unready_seconds) or None
