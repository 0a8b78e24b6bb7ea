"""The container that serves: its command line, resources, probes and environment."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from forebay_budget.quantity import to_exact_quantity
from forebay_budget.sizing import Fit
from forebay_operator.observed import Object, Settings
from forebay_operator.planning.children.model_source import build_hub_env, model_argument
from forebay_operator.planning.children.pod_frame import build_container_security
from forebay_operator.planning.nodes.selector import Term
from forebay_operator.planning.pods import RUNTIME_CONTAINER
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service

PORT = 8000
CACHE_PATH = "/cache"
"""What a pod downloads and compiles: a volume of the user's, or one that goes with the pod."""
COMPILED_PATH = f"{CACHE_PATH}/compiled"
SCRATCH_PATH = "/tmp"
CPU_REQUEST = "100m"
NGRAM_SIZES = {"prompt_lookup_min": 2, "prompt_lookup_max": 5}
"""Two tokens in a row that came before are worth a try, as the runtime tells soon which are not."""
_DEVICES = {"GPU": "cuda", "CPU": "cpu"}


@dataclass(frozen=True)
class TemplateInputs:
    """What a template is rendered from beside the spec."""

    fit: Fit
    image: str
    model_revision: str
    draft_revision: str
    """Empty where there is no draft model."""
    pin: tuple[Term, ...]
    """Node selector terms of which one must hold."""
    settings: Settings


def build_runtime_container(service: Service, inputs: TemplateInputs) -> Manifest:
    """The container without its volume mounts."""
    return {
        "name": RUNTIME_CONTAINER,
        "image": inputs.image,
        "imagePullPolicy": inputs.settings.image_pull_policy,
        "command": ["forebay"],
        "args": _build_arguments(service, inputs),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "env": _build_env(service, inputs),
        "resources": _build_resources(service, inputs.fit),
        "securityContext": build_container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_build_probes(service),
    }


def _build_arguments(service: Service, inputs: TemplateInputs) -> list[str]:
    """Every planned flag with its number, so that the runtime decides nothing anew."""
    fit = inputs.fit
    stages = fit.pipeline_parallel_size
    planned: dict[str, object] = {
        "host": "0.0.0.0",
        "port": PORT,
        "served-model-name": service.model.name,
        "device": _DEVICES[fit.device],
        "dtype": fit.dtype,
        "max-model-len": fit.max_model_len,
        "max-num-seqs": fit.max_num_seqs,
        "max-num-batched-tokens": fit.max_num_batched_tokens,
        "gpu-memory-utilization": fit.gpu_memory_utilization,
        "kv-cache-memory-bytes": fit.terms.kv_cache_bytes,
        "tensor-parallel-size": fit.tensor_parallel_size,
        # A runtime that a service is pinned to may not know it.
        "pipeline-parallel-size": stages if stages > 1 else None,
        "quantization": fit.quantization,
        "kv-cache-dtype": fit.kv_cache_dtype,
        "speculative-config": _build_speculation(service, inputs.draft_revision),
        "shutdown-timeout": service.drain.timeout_seconds,
        "lame-duck-seconds": service.drain.lame_duck_seconds,
    }
    flags = [f"--{name}={value}" for name, value in planned.items() if value is not None]
    model = model_argument(service.model, inputs.model_revision)
    return ["serve", model, *flags, *service.engine.extra_args]


def _build_speculation(service: Service, draft_revision: str) -> str | None:
    """The runtime's JSON; None where nothing is asked for."""
    asked = service.engine.speculative
    if asked is None:
        return None
    fields: Manifest = {"method": asked.method, "num_speculative_tokens": asked.num_tokens}
    if asked.draft is None:
        fields |= NGRAM_SIZES
    else:
        fields["model"] = model_argument(asked.draft, draft_revision)
    return json.dumps(fields, sort_keys=True)


def _build_resources(service: Service, fit: Fit) -> Manifest:
    """The plan's memory (CPU) or GPUs, under what the user says; the CPU request is small."""
    limits: dict[str, str] = {}
    if fit.device == "GPU":
        limits[service.vram.gpu_resource] = str(fit.num_gpus)
    else:
        limits["memory"] = to_exact_quantity(fit.budget_bytes)
    limits |= dict(service.pod_template.limits)
    requests = {"cpu": CPU_REQUEST} | limits | dict(service.pod_template.requests)
    return {"limits": limits, "requests": requests}


def _build_probes(service: Service) -> Manifest:
    """Each second, so that a pod serves as soon as it can; once started it may miss a few."""
    return {
        "startupProbe": {
            "httpGet": {"path": "/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 1,
            "failureThreshold": service.startup_timeout_seconds,
        },
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 5,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 10,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
    }


def _build_env(service: Service, inputs: TemplateInputs) -> list[Object]:
    """The user's variables win over ours, but never over the hub and its token."""
    # The root file system is read-only, and the user id need not be one that the image knows.
    ours = {"HOME": SCRATCH_PATH, "TMPDIR": SCRATCH_PATH}
    if any(model.scheme == "hf" for model in service.models):
        ours["HF_HOME"] = CACHE_PATH
    if inputs.fit.device == "GPU":
        ours["FOREBAY_CACHE_DIR"] = COMPILED_PATH
    named: list[Object] = [{"name": name, "value": value} for name, value in ours.items()]
    hubs = [build_hub_env(model, inputs.settings) for model in service.models]
    return _merge_by_name(named, service.pod_template.env, *hubs)


def _merge_by_name(*groups: Iterable[Object]) -> list[Object]:
    merged = {variable["name"]: dict(variable) for group in groups for variable in group}
    return list(merged.values())
