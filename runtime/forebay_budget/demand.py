"""What the user and the cluster ask of a model's size, and which of it cannot be meant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

from forebay_budget.draft import find_draft_fault
from forebay_budget.inspection import Inspection, ModelConfig
from forebay_budget.quantity import format_bytes
from forebay_budget.rounding import GROUP_SIZES, ROUNDED_BITS, row_step, unrounded_inputs
from forebay_budget.terms import (
    DTYPE_BYTES,
    KV_BITS,
    admissible_tensor_parallel_sizes,
    describe_divided,
)

Device = Literal["GPU", "CPU"]

SPEC_FIELDS: dict[str, str] = {
    "device": "device",
    "gpu_memory_bytes": "vram.gpuMemory",
    "budget_bytes": "vram.budget",
    "max_gpus_per_node": "GPUs a node",
    "max_model_len": "engine.maxModelLen",
    "max_num_seqs": "engine.maxNumSeqs",
    "mean_tokens": "mean tokens",
    "tensor_parallel_size": "engine.tensorParallelSize",
    "pipeline_parallel_size": "engine.pipelineParallelSize",
    "gpu_memory_utilization": "engine.gpuMemoryUtilization",
    "dtype": "engine.dtype",
    "quantization": "model.quantization",
    "kv_cache_dtype": "engine.kvCacheDtype",
    "max_num_batched_tokens": "engine.maxNumBatchedTokens",
    "num_speculative_tokens": "engine.speculative.numTokens",
    "draft": "engine.speculative.model",
    "draft_quantization": "the draft model's quantization",
}
"""How messages name a Demand's fields to someone who writes an InferenceService."""


@dataclass(frozen=True)
class Demand:
    """What is asked; None is derived."""

    device: Device
    gpu_memory_bytes: int | None = None
    """Of one GPU."""
    budget_bytes: int | None = None
    """Cap per replica, over all its GPUs; on a CPU the pod's memory limit."""
    max_gpus_per_node: int = 8
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    mean_tokens: int | None = None
    """Mean length of a request, prompt and answer; a quarter of max_model_len where absent."""
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    """Stages that the layers go over; None: 1, or the fewest that fit where no tensor parallelism
    does and none is asked for."""
    gpu_memory_utilization: Decimal | None = None
    dtype: str = "auto"
    quantization: str = "None"
    """`None` or `Auto` (both serve the checkpoint as it is), `INT8` or `INT4`."""
    kv_cache_dtype: str = "auto"
    max_num_batched_tokens: int | None = None
    num_speculative_tokens: int | None = None
    """Proposed at a time; None: nothing is."""
    draft: Inspection | None = None
    """The model that proposes them, if one does."""
    draft_quantization: str = "None"


def find_fault(demand: Demand, config: ModelConfig, names: Mapping[str, str]) -> str | None:
    """Say in a sentence what in a demand cannot be meant; names are how fields are called."""
    faults = (
        *_faults_of_numbers(demand, names),
        *_faults_of_choices(demand, names),
        *_faults_of_lengths(demand, config, names),
        *faults_of_formats(config, names, demand.quantization, demand.kv_cache_dtype),
        *_faults_of_draft(demand, config, names),
        *(_faults_on_cpu(demand, names) if demand.device == "CPU" else ()),
        *(_faults_on_gpus(demand, config, names) if demand.device == "GPU" else ()),
    )
    return next(iter(faults), None)


def _faults_of_numbers(demand: Demand, names: Mapping[str, str]) -> Iterator[str]:
    for field in (
        "gpu_memory_bytes",
        "budget_bytes",
        "max_gpus_per_node",
        "max_model_len",
        "max_num_seqs",
        "mean_tokens",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "max_num_batched_tokens",
        "num_speculative_tokens",
    ):
        value = getattr(demand, field)
        if value is not None and value < 1:
            yield f"{names[field]} is {value}; it must be at least 1."
    utilization = demand.gpu_memory_utilization
    if utilization is not None and not 0 < utilization <= 1:
        field = names["gpu_memory_utilization"]
        yield f"{field} is {utilization}; it must be above 0 and at most 1."


def _faults_of_choices(demand: Demand, names: Mapping[str, str]) -> Iterator[str]:
    for field, known in (
        ("device", ("GPU", "CPU")),
        ("dtype", ("auto", *DTYPE_BYTES)),
        ("kv_cache_dtype", ("auto", *KV_BITS)),
        ("quantization", ("Auto", "None", *ROUNDED_BITS)),
    ):
        value = getattr(demand, field)
        if value.lower() not in [choice.lower() for choice in known]:
            yield f"{names[field]} is {value!r}; it must be one of {', '.join(known)}."


def faults_of_formats(
    config: ModelConfig, names: Mapping[str, str], quantization: str, kv_cache_dtype: str
) -> Iterator[str]:
    """What of the asked number formats a model cannot have; the runtime refuses by it too."""
    bits = ROUNDED_BITS.get(quantization.upper())
    field = names["quantization"]
    odd = None if bits is None else unrounded_inputs(config, bits)
    if bits is not None and config.weight_bits not in (0, bits):
        yield (
            f"{field} is {quantization}, but the checkpoint's weights are quantised to "
            f"{config.weight_bits} bits already; leave it out, or name an unquantised checkpoint."
        )
    if bits is not None and not config.weight_bits and odd is not None:
        yield (
            f"{field} is {quantization}, but the model has matrices of {odd} inputs, which are "
            f"neither groups of {', '.join(map(str, GROUP_SIZES))} nor, for one scale a row, a "
            f"multiple of {row_step(bits)}; leave it out."
        )
    if kv_cache_dtype.lower() == "int4" and config.head_dim % 2:
        yield (
            f"{names['kv_cache_dtype']} is {kv_cache_dtype}, which keeps two numbers a byte, but "
            f"the model's heads have {config.head_dim}; choose int8."
        )


def _faults_of_lengths(
    demand: Demand, config: ModelConfig, names: Mapping[str, str]
) -> Iterator[str]:
    context = config.max_position_embeddings
    for field in ("max_model_len", "mean_tokens"):
        value = getattr(demand, field)
        if value is not None and value > context:
            yield (
                f"{names[field]} is {value}, but the model's context ends at {context} tokens; "
                f"set at most {context}."
            )
    for smaller, larger in (
        ("mean_tokens", "max_model_len"),
        ("max_num_seqs", "max_num_batched_tokens"),
    ):
        low, high = getattr(demand, smaller), getattr(demand, larger)
        if low is not None and high is not None and low > high:
            yield f"{names[smaller]} ({low}) may not be more than {names[larger]} ({high})."


def _faults_of_draft(
    demand: Demand, config: ModelConfig, names: Mapping[str, str]
) -> Iterator[str]:
    if demand.draft is None:
        return
    own = {**names, "quantization": names["draft_quantization"]}
    sizes = demand.draft.config
    yield from faults_of_formats(sizes, own, demand.draft_quantization, demand.kv_cache_dtype)
    fault = find_draft_fault(config, sizes, sizes.architecture)
    if fault is not None:
        yield f"{names['draft']}: {fault}."
    for field in ("tensor_parallel_size", "pipeline_parallel_size"):
        if (getattr(demand, field) or 1) > 1:
            yield (
                f"{names['draft']} asks for a draft model, which runs on one GPU only; leave "
                f"{names[field]} out, or propose tokens by ngram."
            )


def _faults_on_cpu(demand: Demand, names: Mapping[str, str]) -> Iterator[str]:
    for field, is_asked in (
        ("gpu_memory_utilization", demand.gpu_memory_utilization is not None),
        ("tensor_parallel_size", (demand.tensor_parallel_size or 1) > 1),
        ("pipeline_parallel_size", (demand.pipeline_parallel_size or 1) > 1),
    ):
        if is_asked:
            yield f"{names[field]} is for GPUs, but {names['device']} is CPU; remove it."


def _faults_on_gpus(demand: Demand, config: ModelConfig, names: Mapping[str, str]) -> Iterator[str]:
    if demand.gpu_memory_bytes is None:
        yield f"The memory of a GPU is not known; set {names['gpu_memory_bytes']}."
    yield from _faults_of_caps(demand, names)
    dtype, kv_dtype = demand.dtype.lower(), demand.kv_cache_dtype.lower()
    dtype = config.dtype if dtype == "auto" else dtype
    if kv_dtype in DTYPE_BYTES and kv_dtype != dtype:
        yield (
            f"{names['kv_cache_dtype']} is {kv_dtype}, but the model runs in {dtype}, which a "
            "GPU's attention does not mix; leave it out, or choose fp8, int8 or int4."
        )
    yield from _faults_of_stages(demand, config, names)
    tp = demand.tensor_parallel_size
    if tp is None:
        return
    sizes = admissible_tensor_parallel_sizes(config, demand.quantization.upper())
    if tp not in sizes:
        yield (
            f"{names['tensor_parallel_size']} is {tp}, but the model "
            f"({describe_divided(config, demand.quantization.upper())}) divides evenly only over "
            f"{_either(sizes)} GPUs."
        )
    elif tp > demand.max_gpus_per_node:
        small = [size for size in sizes if size <= demand.max_gpus_per_node]
        yield (
            f"{names['tensor_parallel_size']} is {tp}, but a node has {demand.max_gpus_per_node} "
            f"GPUs at most; set {_either(small)}."
        )


def _faults_of_stages(
    demand: Demand, config: ModelConfig, names: Mapping[str, str]
) -> Iterator[str]:
    pp, tp = demand.pipeline_parallel_size, demand.tensor_parallel_size or 1
    if pp is None or pp == 1:
        return
    field = names["pipeline_parallel_size"]
    if pp > config.num_layers:
        yield (
            f"{field} is {pp}, but the model has {config.num_layers} layers; set at most "
            f"{config.num_layers}."
        )
    elif tp * pp > demand.max_gpus_per_node:
        most = max(1, demand.max_gpus_per_node // tp)
        each = f", as each stage takes {tp}" if tp > 1 else ""
        yield (
            f"{field} is {pp}, but a node has {demand.max_gpus_per_node} GPUs at most; set at most "
            f"{most}{each}."
        )


def _faults_of_caps(demand: Demand, names: Mapping[str, str]) -> Iterator[str]:
    """Two caps on one thing: a share of each GPU that even one GPU may not give."""
    share, budget_bytes = demand.gpu_memory_utilization, demand.budget_bytes
    memory_bytes = demand.gpu_memory_bytes
    tp = (demand.tensor_parallel_size or 1) * (demand.pipeline_parallel_size or 1)
    if share is None or budget_bytes is None or memory_bytes is None:
        return
    asked_bytes = int(share * memory_bytes)
    if asked_bytes * tp <= budget_bytes:
        return
    most = (Decimal(budget_bytes) / tp / memory_bytes).quantize(Decimal("0.01"), ROUND_FLOOR)
    field, on = names["gpu_memory_utilization"], "one GPU" if tp == 1 else f"{tp} GPUs"
    yield (
        f"{field} {share} takes {format_bytes(asked_bytes * tp)} of {on} of "
        f"{format_bytes(memory_bytes)}, but {names['budget_bytes']} allows "
        f"{format_bytes(budget_bytes)}; leave one of the two out, or set {field} to {most} or less."
    )


def _either(numbers: list[int]) -> str:
    *first, last = [str(number) for number in numbers]
    return f"{', '.join(first)} or {last}" if first else last
