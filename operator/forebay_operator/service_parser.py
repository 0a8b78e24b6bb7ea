"""Read a raw InferenceService; the CRD's schema has refused most of what would not parse."""

from decimal import Decimal, InvalidOperation
from typing import Any, cast, get_args

from forebay_budget.quantity import parse_quantity
from forebay_operator.cron import CronError, check_cron
from forebay_operator.observed import Object
from forebay_operator.service import (
    Device,
    Drain,
    EngineOptions,
    Method,
    Model,
    PodTemplate,
    Rollout,
    Scaling,
    Schedule,
    Scheme,
    Service,
    Speculative,
    Strategy,
    Vram,
)

MOST_BYTES = 1024**6
"""1 EiB. What is planned beyond would not fit into the integers that Kubernetes stores."""


class SpecError(ValueError):
    """The spec cannot be understood; the message is one sentence that names the field."""


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
        engine=_parse_engine(spec.get("engine") or {}, spec.get("model") or {}),
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
    scheme, location = _parse_uri("spec.model.uri", uri)
    return Model(
        uri=uri,
        scheme=scheme,
        location=location,
        name=model.get("name") or service_name,
        secret_name=model.get("secretName", ""),
        quantization=model.get("quantization", Model.quantization),
    )


def _parse_uri(path: str, uri: str) -> tuple[Scheme, str]:
    """Its scheme, and what follows."""
    scheme, separator, location = uri.partition("://")
    if not separator or not location or scheme not in get_args(Scheme):
        raise SpecError(f"{path} is {uri!r}; write hf://ORG/NAME, oci://IMAGE or pvc://CLAIM/PATH.")
    return cast(Scheme, scheme), location


def _parse_vram(vram: Object) -> Vram:
    return Vram(
        budget_bytes=_bytes("spec.vram.budget", vram.get("budget")),
        gpu_memory_bytes=_bytes("spec.vram.gpuMemory", vram.get("gpuMemory")),
        gpu_resource=vram.get("gpuResource") or Vram.gpu_resource,
    )


def _parse_speculative(written: Object, model: Object) -> Speculative | None:
    """None where nothing is asked for; model: the spec's, whose Secret opens the draft's hub."""
    uri = written.get("model", "")
    asked = written.get("method") or ("draft_model" if uri else None)
    if asked is None:
        return None
    method: Method = _one_of("spec.engine.speculative.method", asked, Method)
    if (method == "draft_model") != bool(uri):
        raise SpecError(
            f"spec.engine.speculative has method {method} and model {uri!r}; draft_model needs "
            "the uri of a draft model, and ngram takes none."
        )
    draft = None
    if uri:
        scheme, location = _parse_uri("spec.engine.speculative.model", uri)
        secret = model.get("secretName", "") if scheme == "hf" else ""
        draft = Model(uri, scheme, location, "", secret, Model.quantization, "draft")
    return Speculative(method, written.get("numTokens", Speculative.num_tokens), draft)


def _parse_engine(engine: Object, model: Object) -> EngineOptions:
    return EngineOptions(
        max_model_len=engine.get("maxModelLen"),
        max_num_seqs=engine.get("maxNumSeqs"),
        dtype=engine.get("dtype", EngineOptions.dtype),
        kv_cache_dtype=engine.get("kvCacheDtype", EngineOptions.kv_cache_dtype),
        tensor_parallel_size=engine.get("tensorParallelSize"),
        pipeline_parallel_size=engine.get("pipelineParallelSize"),
        gpu_memory_utilization=_share(engine.get("gpuMemoryUtilization")),
        speculative=_parse_speculative(engine.get("speculative") or {}, model),
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
