"""How `forebay budget` shows an answer: as a table for people, as a document for programs."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from forebay_budget.demand import Demand
from forebay_budget.fit import Fit, Misfit, Nearest
from forebay_budget.inspection import Inspection, ModelConfig
from forebay_budget.quantity import format_bytes
from forebay_budget.terms import held_tokens

_COMFORTABLE_PERCENT = 70

_KEYS = {
    "budget_bytes": "budgetBytes",
    "gpu_memory_bytes": "gpuMemoryBytes",
    "gpu_memory_utilization": "gpuMemoryUtilization",
    "max_gpus_per_node": "gpusPerNode",
    "max_model_len": "maxModelLen",
    "max_num_seqs": "maxNumSeqs",
    "tensor_parallel_size": "tensorParallelSize",
    "pipeline_parallel_size": "pipelineParallelSize",
}


def to_document(answer: Fit | Misfit) -> dict[str, Any]:
    """The keys of `status.plan` and the terms per GPU in bytes; or what is missing."""
    if isinstance(answer, Misfit):
        return {
            "fits": False,
            "neededBytes": answer.needed_bytes,
            "allowedBytes": answer.allowed_bytes,
            "nearest": [_to_keys(option) for option in answer.nearest],
            "explanation": answer.message,
        }
    return {
        "fits": True,
        **answer.to_plan(),
        "weightsBytes": answer.terms.weights_bytes,
        "kvCacheBytes": answer.terms.kv_cache_bytes,
        "activationBytes": answer.terms.activation_bytes,
        "overheadBytes": answer.terms.overhead_bytes,
        **_draft_terms(answer),
    }


def _draft_terms(fit: Fit) -> dict[str, Any]:
    """A draft model's, where there is one."""
    if not fit.terms.draft_weights_bytes:
        return {}
    return {
        "draftWeightsBytes": fit.terms.draft_weights_bytes,
        "draftKvCacheBytes": fit.terms.draft_kv_cache_bytes,
    }


def _to_keys(option: Nearest) -> dict[str, Any]:
    """The changes of one option, by keys like those of the plan."""
    return {
        _KEYS[field]: str(value) if isinstance(value, Decimal) else value
        for field, value in option.changes
    }


def to_text(inspection: Inspection, demand: Demand, answer: Fit | Misfit) -> str:
    """A few aligned lines."""
    blocks = [_model_line(inspection)]
    if isinstance(answer, Misfit):
        blocks.append(f"Does not fit. {answer.message}")
    else:
        blocks += [
            _plan(inspection, answer, demand),
            _split(answer, demand),
            _concurrency(inspection.config, answer),
        ]
    return "\n\n".join(blocks) + "\n"


def _model_line(inspection: Inspection) -> str:
    stored = inspection.quantization or inspection.config.dtype
    line = (
        f"{inspection.config.architecture}, {_millions(inspection.num_parameters)} parameters, "
        f"{format_bytes(inspection.weights_bytes)} on disk ({stored}, {inspection.format})"
    )
    return "; ".join((line, *_peculiarities(inspection.config)))


def _peculiarities(config: ModelConfig) -> Iterator[str]:
    """What makes a model's memory unlike most."""
    if config.num_experts:
        yield f"{config.num_experts_per_token} of {config.num_experts} experts a token"
    if config.window is not None:
        yield f"a window of {config.window} tokens, which bounds what a request keeps"


def _millions(count: int) -> str:
    return f"{count / 1e9:.1f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


def _plan(inspection: Inspection, fit: Fit, demand: Demand) -> str:
    rows = []
    if fit.device == "GPU":
        gpus = "1 GPU" if fit.num_gpus == 1 else f"{fit.num_gpus} GPUs"
        rows.append(("fits on", f"{gpus} of {format_bytes(demand.gpu_memory_bytes or 0)}"))
        rows.append(("tensor parallelism", str(fit.tensor_parallel_size)))
        if fit.pipeline_parallel_size > 1:
            rows.append(("pipeline stages", str(fit.pipeline_parallel_size)))
        rows.append(("memory utilisation", str(fit.gpu_memory_utilization)))
    else:
        rows.append(("fits in", f"a CPU pod of {format_bytes(fit.budget_bytes)}"))
    formats = _plain_format(inspection, fit)
    if inspection.config.weight_bits:
        formats += f", weights as stored ({inspection.quantization})"
    elif fit.quantization != "None":
        formats += f", weights {fit.quantization}"
    rows += [
        ("number format", f"{formats}; KV cache {fit.kv_cache_dtype}"),
        ("longest request", f"{fit.max_model_len} tokens"),
        ("requests at once", f"{fit.max_num_seqs} at most"),
    ]
    return _table(rows)


def _plain_format(inspection: Inspection, fit: Fit) -> str:
    """What is not quantised is computed in, and on a CPU also kept in."""
    if fit.device == "GPU" or fit.dtype != "auto":
        return fit.dtype
    is_plain = inspection.quantization is None and fit.quantization == "None"
    if is_plain and inspection.config.dtype == "bfloat16":
        return "float32 (where the CPU multiplies bfloat16, that: half of the weights' memory)"
    return "float32"


def _split(fit: Fit, demand: Demand) -> str:
    total = demand.gpu_memory_bytes if fit.device == "GPU" else fit.budget_bytes
    terms = fit.terms
    rows = [
        ("weights", terms.weights_bytes),
        ("KV cache", terms.kv_cache_bytes),
        *(
            [
                ("draft weights", terms.draft_weights_bytes),
                ("draft KV cache", terms.draft_kv_cache_bytes),
            ]
            if terms.draft_weights_bytes
            else []
        ),
        ("activations", terms.activation_bytes),
        ("overhead", terms.overhead_bytes),
        ("left free", (total or 0) - terms.total_bytes),
    ]
    head = "per GPU" if fit.device == "GPU" else "in the pod"
    lines = [f"{head:<20}{'':>10}"]
    for name, num_bytes in rows:
        share = num_bytes / (total or 1)
        lines.append(f"  {name:<18}{format_bytes(num_bytes):>10}{share:>7.0%}")
    return "\n".join(line.rstrip() for line in lines)


def _concurrency(config: ModelConfig, fit: Fit) -> str:
    comfortable = fit.kv_cache_tokens * _COMFORTABLE_PERCENT // 100
    longest, mean = fit.max_model_len, fit.mean_tokens
    held_by_longest, held_by_mean = (
        held_tokens(config, tokens, fit.max_num_batched_tokens) for tokens in (longest, mean)
    )
    rows = [
        (f"of {longest} tokens, the longest", fit.kv_cache_tokens // held_by_longest),
        (f"of {mean} tokens, the mean", fit.kv_cache_tokens // held_by_mean),
        (
            f"of {mean} tokens at {_COMFORTABLE_PERCENT} % of the cache",
            comfortable // held_by_mean,
        ),
    ]
    lines = [f"requests that {fit.kv_cache_tokens} tokens of KV cache hold at once"]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(lines + [f"  {name:<{width}}{count:>8}" for name, count in rows])


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"{name:<20}{value}" for name, value in rows)
