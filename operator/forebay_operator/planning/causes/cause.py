"""Why something does not go on: one reason for machines, one sentence for people."""

from dataclasses import dataclass

_TRANSIENT = frozenset(
    {
        "Unschedulable",
        "VolumeClaimUnbound",
        "VolumeMountFailed",
        "PodSandboxFailed",
        "NotReady",
        "SchedulingGated",
        "NamespaceTerminating",
        "InspectionSuspended",
        "HubUnreachable",
        "HubError",
        "HubTimeout",
        "ServiceAccountMissing",
        "ApplyFailed",
        "APIServerSlow",
        "WebhookFailed",
        # What a node does to a pod, whose successor is tried elsewhere.
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "Preempting",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""Reasons that often pass by themselves: Reconciling, not Stalled, until the deadline."""
_MOST_CHARS = 600


@dataclass(frozen=True)
class Cause:
    """What is wrong and what to do about it."""

    reason: str
    message: str
    may_pass: bool = False
    """Whether this once it may pass by itself, though its reason seldom does."""

    @property
    def is_transient(self) -> bool:
        return self.may_pass or self.reason in _TRANSIENT


def trim(sentence: str) -> str:
    """One line without its end, short enough for a condition."""
    text = " ".join(sentence.split()).rstrip(". ")
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
