"""Choose how a model is spread over GPUs (or sits in a CPU pod's memory), or say what would fit.

The operator plans by it and `forebay budget` shows it. Pure: the same question, the same answer.
"""

from collections.abc import Mapping

from forebay_budget.case import Case, Split, choose_split, spread_layers
from forebay_budget.demand import SPEC_FIELDS, Demand, Device, find_fault
from forebay_budget.explanation import explain_fit
from forebay_budget.fit import Fit, Misfit, Nearest
from forebay_budget.inspection import Inspection
from forebay_budget.nearest import explain_misfit
from forebay_budget.terms import BLOCK_TOKENS, MIB, Terms

__all__ = ["Demand", "Device", "Fit", "Misfit", "Nearest", "Terms", "size"]


def size(
    inspection: Inspection, demand: Demand, names: Mapping[str, str] = SPEC_FIELDS
) -> Fit | Misfit:
    """Return the plan of the least tensor parallelism that fits, or why there is none.

    names are how messages call the demand's fields: those of an InferenceService, or flags.
    """
    fault = find_fault(demand, inspection.config, names)
    if fault is not None:
        return Misfit("InvalidField", 0, 0, (), fault)
    case = Case(inspection, demand, demand.pipeline_parallel_size or 1)
    split = choose_split(case)
    if split is not None:
        return _fit(case, split, names)
    spread = spread_layers(case)
    return explain_misfit(case, names) if spread is None else _fit(*spread, names)


def _fit(case: Case, split: Split, names: Mapping[str, str]) -> Fit:
    num_blocks = split.terms.kv_cache_bytes // case.kv_token_bytes(split.tp) // BLOCK_TOKENS
    kv_cache_tokens = num_blocks * BLOCK_TOKENS
    return Fit(
        device=case.demand.device,
        tensor_parallel_size=split.tp,
        gpu_memory_utilization=_utilization(case, split),
        max_model_len=split.max_model_len,
        max_num_seqs=split.max_num_seqs,
        max_num_batched_tokens=split.max_num_batched_tokens,
        mean_tokens=split.mean_tokens,
        terms=split.terms,
        kv_cache_tokens=kv_cache_tokens,
        dtype=case.flag_dtype,
        kv_cache_dtype=case.kv_cache_dtype,
        quantization=case.quantization,
        budget_bytes=_budget_bytes(case, split),
        explanation=explain_fit(case, split, kv_cache_tokens, names),
        pipeline_parallel_size=split.pp,
    )


def _utilization(case: Case, split: Split) -> str | None:
    """The sum's share of the GPU, rounded down, so that it never means more than the sum."""
    memory = case.demand.gpu_memory_bytes
    if case.demand.device == "CPU" or memory is None:
        return None
    # The cap itself was rounded down to a whole byte; that byte must not cost a hundredth.
    hundredths = max(1, (split.terms.total_bytes + 1) * 100 // memory)
    return f"{hundredths // 100}.{hundredths % 100:02}"


def _budget_bytes(case: Case, split: Split) -> int:
    if case.demand.budget_bytes is not None:
        return case.demand.budget_bytes
    return -(-split.num_gpus * split.terms.total_bytes // MIB) * MIB
