"""What a decision wants done: plain data, written by `planning.plan` and carried out by `apply`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay_operator.observed import ScalingMemory


@dataclass(frozen=True)
class ObjectRef:
    """Names one object in the service's namespace; the uid guards against a newer object of the
    same name."""

    api_version: str
    kind: str
    name: str
    uid: str
    version: str = ""
    """Its resource version, where it may be deleted in no other state than the one observed."""


@dataclass(frozen=True)
class Note:
    """An Event for the person who reads `kubectl describe`."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


@dataclass(frozen=True)
class Tally:
    """Something that happened and is counted by a metric of the operator, once it was written."""

    name: str
    """Of the metric, without its prefix: `scale_decisions`, `drains`."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The whole wish for one InferenceService at one moment."""

    children: tuple[Mapping[str, Any], ...] = ()
    """Manifests, applied in this order where they differ from what is there."""
    deletions: tuple[ObjectRef, ...] = ()
    """Children that are no longer wanted."""
    deletion_costs: tuple[tuple[str, int], ...] = ()
    """(pod name, controller.kubernetes.io/pod-deletion-cost), written before the Deployment's
    replicas shrink."""
    status: Mapping[str, Any] | None = None
    """The whole status, written last and only where it differs; None: leave it."""
    notes: tuple[Note, ...] = ()
    tallies: tuple[Tally, ...] = ()
    look_again_seconds: float | None = None
    """When this decision may change although no event arrives; None: the resync is enough."""
    memory: ScalingMemory | None = None
    """Kept for the next decision about this service."""
