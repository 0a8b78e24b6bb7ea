"""An InferenceService as code sees it, with every default filled in.

`service_parser` makes it of a raw object, `planning` reads it. What may not happen here is a
decision: an absent field that sizing derives stays None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from forebay_operator.observed import Object

Device = Literal["GPU", "CPU"]
Scheme = Literal["hf", "oci", "pvc"]
Role = Literal["model", "draft"]
Method = Literal["ngram", "draft_model"]
Strategy = Literal["Auto", "Surge", "Replace"]


@dataclass(frozen=True)
class Model:
    """Where the model comes from and how it is called."""

    uri: str
    scheme: Scheme
    location: str
    """The uri without its scheme: `org/name@rev`, an image, or `claim/path`."""
    name: str
    secret_name: str = ""
    quantization: str = "Auto"
    role: Role = "model"
    """What it is served as, by which its volume and its folder in a pod are called."""

    @property
    def claim(self) -> str:
        """The claim of a pvc:// model."""
        return self.location.partition("/")[0]

    @property
    def claim_path(self) -> str:
        """The path inside the claim of a pvc:// model; empty for its root."""
        return self.location.partition("/")[2].strip("/")


@dataclass(frozen=True)
class Vram:
    """Memory that the user grants."""

    budget_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    gpu_resource: str = "nvidia.com/gpu"


@dataclass(frozen=True)
class Speculative:
    """How tokens are proposed that the model then tries several of in one step."""

    method: Method
    num_tokens: int = 5
    draft: Model | None = None
    """The smaller model that proposes them, for method draft_model."""


@dataclass(frozen=True)
class EngineOptions:
    """What the user fixes of the engine; None is derived."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    dtype: str = "Auto"
    kv_cache_dtype: str = "Auto"
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    gpu_memory_utilization: Decimal | None = None
    speculative: Speculative | None = None
    extra_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """Bounds that stand from each of its times until the next time of any schedule.

    A bound that is None is the one of `spec.scaling`.
    """

    cron: str
    time_zone: str = "UTC"
    min_replicas: int | None = None
    max_replicas: int | None = None


@dataclass(frozen=True)
class Scaling:
    """Bounds and pace of scaling on the queue."""

    max_replicas: int
    min_replicas: int = 1
    target_queue_depth: int = 4
    window_seconds: int = 300
    schedules: tuple[Schedule, ...] = ()


@dataclass(frozen=True)
class Drain:
    """How long a leaving pod may finish what it holds."""

    timeout_seconds: int = 120
    lame_duck_seconds: int = 5


@dataclass(frozen=True)
class Rollout:
    """How a changed template reaches the pods."""

    strategy: Strategy = "Auto"
    progress_deadline_seconds: int = 1800


@dataclass(frozen=True)
class PodTemplate:
    """The closed list of what a user may add to the pods, as written in the spec."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    affinity: Object = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    env: tuple[Object, ...] = ()
    runtime_class_name: str = ""
    priority_class_name: str = ""
    image_pull_secrets: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    volume_mounts: tuple[Object, ...] = ()


@dataclass(frozen=True)
class Service:
    """One InferenceService with its defaults."""

    namespace: str
    name: str
    uid: str
    generation: int
    model: Model
    device: Device = "GPU"
    vram: Vram = Vram()
    engine: EngineOptions = EngineOptions()
    replicas: int = 1
    scaling: Scaling | None = None
    startup_timeout_seconds: int = 1800
    drain: Drain = Drain()
    rollout: Rollout = Rollout()
    runtime_version: str = ""
    pod_template: PodTemplate = PodTemplate()

    @property
    def draft(self) -> Model | None:
        """The draft model, where one is asked for."""
        speculative = self.engine.speculative
        return None if speculative is None else speculative.draft

    @property
    def models(self) -> tuple[Model, ...]:
        """All that its pods load."""
        return (self.model,) if self.draft is None else (self.model, self.draft)
