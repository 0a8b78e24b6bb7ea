"""An InferenceService as code sees it: the raw object parsed, with every default filled in.

`planning` reads it; the CRD's schema has refused most of what would not parse before it gets here.
What may not happen here is a decision: an absent field that sizing derives stays None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast, get_args

from forebay_budget.quantity import parse_quantity
from forebay_operator.cron import CronError, check_cron
from forebay_operator.observed import Object

Device = Literal["GPU", "CPU"]
Scheme = Literal["hf", "oci", "pvc"]
Strategy = Literal["Auto", "Surge", "Replace"]


MOST_BYTES = 1024**6
"""1 EiB. What is planned beyond would not fit into the integers that Kubernetes stores."""


class SpecError(ValueError):
    """The spec cannot be understood; the message is one sentence that names the field."""


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
class EngineOptions:
    """What the user fixes of the engine; None is derived."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    dtype: str = "Auto"
    kv_cache_dtype: str = "Auto"
    tensor_parallel_size: int | None = None
    gpu_memory_utilization: Decimal | None = None
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


def parse_service(raw: Object) -> Service:
    """Read an InferenceService; SpecError where a field does not say what it must."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    startup = spec.get("startup") or {}
    return Service(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        model=_parse_model(spec.get("model") or {}, metadata["name"]),
        device=_one_of("spec.device", spec.get("device", Service.device), Device),
        vram=_parse_vram(spec.get("vram") or {}),
        engine=_parse_engine(spec.get("engine") or {}),
        replicas=spec.get("replicas", Service.replicas),
        scaling=_parse_scaling(spec.get("scaling")),
        startup_timeout_seconds=startup.get("timeoutSeconds", Service.startup_timeout_seconds),
        drain=_parse_drain(spec.get("drain") or {}),
        rollout=_parse_rollout(spec.get("rollout") or {}),
        runtime_version=spec.get("runtimeVersion", ""),
        pod_template=_parse_pod_template(spec.get("podTemplate") or {}),
    )


def _parse_model(model: Object, service_name: str) -> Model:
    uri = model.get("uri", "")
    scheme, separator, location = uri.partition("://")
    if not separator or not location or scheme not in get_args(Scheme):
        raise SpecError(
            f"spec.model.uri is {uri!r}; write hf://ORG/NAME, oci://IMAGE or pvc://CLAIM/PATH."
        )
    return Model(
        uri=uri,
        scheme=cast(Scheme, scheme),
        location=location,
        name=model.get("name") or service_name,
        secret_name=model.get("secretName", ""),
        quantization=model.get("quantization", Model.quantization),
    )


def _parse_vram(vram: Object) -> Vram:
    return Vram(
        budget_bytes=_bytes("spec.vram.budget", vram.get("budget")),
        gpu_memory_bytes=_bytes("spec.vram.gpuMemory", vram.get("gpuMemory")),
        gpu_resource=vram.get("gpuResource") or Vram.gpu_resource,
    )


def _parse_engine(engine: Object) -> EngineOptions:
    return EngineOptions(
        max_model_len=engine.get("maxModelLen"),
        max_num_seqs=engine.get("maxNumSeqs"),
        dtype=engine.get("dtype", EngineOptions.dtype),
        kv_cache_dtype=engine.get("kvCacheDtype", EngineOptions.kv_cache_dtype),
        tensor_parallel_size=engine.get("tensorParallelSize"),
        gpu_memory_utilization=_share(engine.get("gpuMemoryUtilization")),
        extra_args=tuple(engine.get("extraArgs") or ()),
    )


def _parse_scaling(scaling: Object | None) -> Scaling | None:
    if scaling is None:
        return None
    return Scaling(
        max_replicas=scaling["maxReplicas"],
        min_replicas=scaling.get("minReplicas", Scaling.min_replicas),
        target_queue_depth=scaling.get("targetQueueDepth", Scaling.target_queue_depth),
        window_seconds=scaling.get("scaleDownStabilizationSeconds", Scaling.window_seconds),
        schedules=tuple(
            _parse_schedule(number, written)
            for number, written in enumerate(scaling.get("schedules") or ())
        ),
    )


def _parse_schedule(number: int, written: Object) -> Schedule:
    schedule = Schedule(
        cron=written["cron"],
        time_zone=written.get("timeZone") or Schedule.time_zone,
        min_replicas=written.get("minReplicas"),
        max_replicas=written.get("maxReplicas"),
    )
    try:
        check_cron(schedule.cron, schedule.time_zone)
    except CronError as error:
        raise SpecError(
            f"spec.scaling.schedules[{number}]: {error}; write minute, hour, day of month, month "
            'and day of week, such as "0 8 * * 1-5", and a time zone such as Europe/Berlin.'
        ) from error
    return schedule


def _parse_drain(drain: Object) -> Drain:
    return Drain(
        drain.get("timeoutSeconds", Drain.timeout_seconds),
        drain.get("lameDuckSeconds", Drain.lame_duck_seconds),
    )


def _parse_rollout(rollout: Object) -> Rollout:
    return Rollout(
        _one_of("spec.rollout.strategy", rollout.get("strategy", Rollout.strategy), Strategy),
        rollout.get("progressDeadlineSeconds", Rollout.progress_deadline_seconds),
    )


def _parse_pod_template(template: Object) -> PodTemplate:
    resources = template.get("resources") or {}
    limits = _quantities(resources.get("limits"))
    _bytes("spec.podTemplate.resources.limits.memory", limits.get("memory"))
    return PodTemplate(
        labels=template.get("labels") or {},
        annotations=template.get("annotations") or {},
        node_selector=template.get("nodeSelector") or {},
        tolerations=tuple(template.get("tolerations") or ()),
        affinity=template.get("affinity") or {},
        limits=limits,
        requests=_quantities(resources.get("requests")),
        env=tuple(template.get("env") or ()),
        runtime_class_name=template.get("runtimeClassName", ""),
        priority_class_name=template.get("priorityClassName", ""),
        image_pull_secrets=tuple(template.get("imagePullSecrets") or ()),
        volumes=tuple(template.get("volumes") or ()),
        volume_mounts=tuple(template.get("volumeMounts") or ()),
    )


def _quantities(resources: Object | None) -> dict[str, str]:
    """Kubernetes takes 2 for "2"; written as text both are equal to what the API server returns."""
    return {name: str(amount) for name, amount in (resources or {}).items()}


def _bytes(path: str, quantity: Any) -> int | None:
    if quantity is None:
        return None
    try:
        num_bytes = parse_quantity(str(quantity))
    except ValueError as error:
        raise SpecError(f"{path}: {error}.") from error
    if num_bytes > MOST_BYTES:
        raise SpecError(f"{path} is {quantity}, more than any machine has; write at most 1Ei.")
    return num_bytes


def _share(text: Any) -> Decimal | None:
    if text is None:
        return None
    try:
        return Decimal(str(text))
    except InvalidOperation as error:
        raise SpecError(
            f'spec.engine.gpuMemoryUtilization is {text!r}; write a decimal such as "0.90".'
        ) from error


def _one_of(path: str, value: Any, allowed: Any) -> Any:
    if value not in get_args(allowed):
        raise SpecError(f"{path} is {value!r}; it can be {', '.join(get_args(allowed))}.")
    return value
