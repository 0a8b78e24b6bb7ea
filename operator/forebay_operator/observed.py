"""Everything one decision may look at: an immutable picture of one InferenceService and what
belongs to it.

`observe` builds it from the store, `planning.plan` reads it. Objects are raw API dictionaries,
exactly as the API server sent them; nobody may change them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Object = Mapping[str, Any]

MEMORY_TERMS = ("weights", "kvCache", "activation", "overhead")
"""What memory is spent on, as pods and `status.memory` name it."""
DRAFT_TERMS = ("draftWeights", "draftKvCache")
"""What more there is beside a draft model."""


@dataclass(frozen=True, order=True)
class Key:
    """Names one InferenceService; without a name, the VRAMQuotas of a namespace."""

    namespace: str
    name: str

    @property
    def is_of_quotas(self) -> bool:
        """Whether the namespace's budget is meant, and no service."""
        return not self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class PodLoad:
    """What a pod's `GET /load` said last; `answered` is False when the last scrape failed."""

    answered: bool
    num_running: int = 0
    num_waiting: int = 0
    kv_cache_usage: float = 0.0
    free_kv_tokens: int = 0
    device: str = ""
    """What it runs on, `cuda` or `cpu`; empty where it does not say."""
    gpu_utilization: float | None = None
    """Between 0 and 1; None where it is not known."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Measured, of one rank, by term: weights, kvCache, activation, overhead; empty if unsaid."""


@dataclass(frozen=True)
class LeavingPod:
    """What is remembered of a pod that drains, so that its end can be judged when it is gone."""

    name: str
    stops_at: datetime
    """When its runtime cuts what it still holds."""
    num_held: int | None = None
    """Requests, as it said last; None where it never answered."""
    is_judged: bool = False


@dataclass(frozen=True)
class Contest:
    """An autoscaler that sets the replicas of the Deployment instead of the service's."""

    seen_at: datetime
    """When its number was there last."""
    put_back_at: datetime


@dataclass(frozen=True)
class ScalingMemory:
    """What scaling and draining remember between decisions; kept in memory only, lost with the
    operator on purpose."""

    started_at: datetime
    """When this operator began to watch: nothing scales down before one full window after it."""
    idle_since: datetime | None = None
    """Since when fewer replicas would have been enough, without a break; None while they would not.
    """
    growth_requests_per_second: float = 0.0
    """Measured growth of the queue, never negative."""
    startup_seconds: float = 0.0
    """Measured time from a pod's creation to its readiness; 0 until one was seen."""
    sampled_at: datetime | None = None
    """When the queue was measured for its growth."""
    sampled_waiting: int = 0
    """How many waited then."""
    reported_at: datetime | None = None
    """When live numbers were last put into status: at most every 30 s."""
    leaving: Mapping[str, LeavingPod] = field(default_factory=dict)
    """Pods that drain, by uid."""
    contest: Contest | None = None
    is_fresh: bool = True
    """Whether this operator has decided nothing yet."""


@dataclass(frozen=True)
class Settings:
    """The platform team's choices, the same for every service."""

    runtime_image: str
    """Image of the runtime for services without `spec.runtimeVersion` that were never rolled out.
    """
    operator_image: str
    """Image of the inspection Job."""
    hub_endpoint: str = ""
    """Base address of the model hub; empty: the public one."""
    hub_ca: str = ""
    """A ConfigMap in the namespace of each service, and its key (default `ca.crt`), as in
    `hub-ca/bundle.pem`: certificates that the hub is trusted by. Empty: the public authorities."""
    image_pull_policy: str = "IfNotPresent"


@dataclass(frozen=True)
class Observed:
    """One InferenceService, its children and the nodes, at one moment."""

    key: Key
    settings: Settings
    service: Object
    """The InferenceService itself, raw."""
    deployment: Object | None = None
    network_service: Object | None = None
    revisions: tuple[Object, ...] = ()
    """ControllerRevisions, oldest first."""
    jobs: tuple[Object, ...] = ()
    """Inspection Jobs, oldest first."""
    job_pods: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    """Serving pods, oldest first, those being deleted included."""
    replica_sets: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] = ()
    resource_slices: tuple[Object, ...] = ()
    """Those that list devices with memory; empty where they may not be read."""
    warnings: tuple[Object, ...] = ()
    """Warning Events of the service's pods, Jobs and ReplicaSets, oldest first."""
    resource_quotas: tuple[Object, ...] = ()
    """The namespace's, read only while one of them refuses pods."""
    loads: Mapping[str, PodLoad] = field(default_factory=dict)
    """By pod uid."""
    memory: ScalingMemory | None = None
    foreign: tuple[str, ...] = ()
    """`Kind/name` of objects that carry a child's name but belong to someone else."""
    quotas: tuple[Object, ...] = ()
    """VRAMQuotas of the namespace, by name."""
    orphans: tuple[str, ...] = ()
    """Those of them that a service of this name left behind, and that nobody owns."""
    nodes_readable: bool = True
    """False where the platform team granted no right to read nodes."""
    apply_error: str = ""
    """The API server's sentence when the last apply of a child was refused (quota, admission,
    RBAC); else empty."""
