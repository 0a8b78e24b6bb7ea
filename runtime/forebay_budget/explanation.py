"""Say in words why a plan is as it is: on what, because of what, and what the cache then holds."""

from collections.abc import Iterator, Mapping

from forebay_budget.case import DEFAULT_UTILIZATION, Case, Split
from forebay_budget.quantity import format_bytes


def explain_fit(case: Case, split: Split, kv_cache_tokens: int, names: Mapping[str, str]) -> str:
    """A few sentences for someone who asked for a model and nothing else.

    names are how the demand's fields are called; kv_cache_tokens are whole blocks.
    """
    parts = split.terms
    draft = ""
    if parts.draft_weights_bytes:
        draft = (
            f"{format_bytes(parts.draft_weights_bytes)} of a draft model's weights and "
            f"{format_bytes(parts.draft_kv_cache_bytes)} of its KV cache, "
        )
    terms = (
        f"{format_bytes(parts.weights_bytes)} of weights {_number_format(case)}, {draft}"
        f"{format_bytes(parts.kv_cache_bytes)} of KV cache, "
        f"{format_bytes(parts.activation_bytes)} of activations and "
        f"{format_bytes(parts.overhead_bytes)} of {_overhead(case)}"
    )
    sentences = (
        f"{_choice(case, split, names)}: {terms}.",
        _tell_cache(case, split, kv_cache_tokens),
    )
    return " ".join((*sentences, *_tell_length(case, split, names)))


def count_gpus(count: int) -> str:
    """`one GPU`, `2 GPUs`."""
    return "one GPU" if count == 1 else f"{count} GPUs"


def _number_format(case: Case) -> str:
    if case.config.weight_bits:
        return f"as stored, in {case.config.weight_bits} bits"
    if case.is_native and case.quantization == "None" and case.inspection.quantization:
        return f"as stored, in {case.inspection.quantization}"
    return f"in {case.dtype if case.quantization == 'None' else case.quantization}"


def _overhead(case: Case) -> str:
    return "the process itself" if case.demand.device == "CPU" else "CUDA's own"


def _choice(case: Case, split: Split, names: Mapping[str, str]) -> str:
    taken = format_bytes(split.terms.total_bytes)
    if case.demand.device == "CPU":
        if case.demand.budget_bytes is None:
            return f"A pod on CPUs with {taken} of memory, which is what it needs"
        allowed = format_bytes(case.demand.budget_bytes)
        return (
            f"A pod on CPUs that takes {taken} of the {allowed} that {names['budget_bytes']} allows"
        )
    gpus, size = count_gpus(split.num_gpus), format_bytes(case.demand.gpu_memory_bytes or 0)
    gives = "Each gives" if split.num_gpus > 1 else "It gives"
    return (
        f"{gpus[0].upper()}{gpus[1:]} of {size}{_reason(case, split, names)}. {gives} {taken} "
        f"({_limit(case, split, names)})"
    )


def _reason(case: Case, split: Split, names: Mapping[str, str]) -> str:
    """Why so many GPUs and no fewer."""
    if split.pp > 1:
        return _reason_of_stages(case, split, names)
    if case.demand.tensor_parallel_size is not None:
        return f", as {names['tensor_parallel_size']} asks"
    fewer = [tp for tp in case.sizes() if tp < split.tp]
    if not fewer:
        return " is enough"
    before = case.split(fewer[-1], case.demand.max_model_len or case.default_model_len)
    needed, allowed = before.needed_bytes, case.cap_bytes(before.tp) or 0
    each = " each" if before.tp > 1 else ""
    return (
        f", because {count_gpus(before.tp)} would have to give {format_bytes(needed)}{each}, where "
        f"{format_bytes(allowed)} may be used"
    )


def _reason_of_stages(case: Case, split: Split, names: Mapping[str, str]) -> str:
    """Why the layers go over several stages."""
    each = "" if split.tp == 1 else f" of {split.tp} GPUs"
    stages = f", the layers in {split.pp} stages{each}"
    if case.demand.pipeline_parallel_size is not None:
        return f"{stages}, as {names['pipeline_parallel_size']} asks"
    return f"{stages}, because no number of GPUs that divides each layer evenly fits"


def _limit(case: Case, split: Split, names: Mapping[str, str]) -> str:
    """What kept a GPU's share from being larger."""
    demand, memory = case.demand, case.demand.gpu_memory_bytes or 0
    utilization = demand.gpu_memory_utilization or DEFAULT_UTILIZATION
    if demand.budget_bytes is not None and demand.budget_bytes // split.num_gpus < int(
        memory * utilization
    ):
        return f"all that {names['budget_bytes']} {format_bytes(demand.budget_bytes)} allows"
    asked = demand.gpu_memory_utilization is not None
    by = f"as {names['gpu_memory_utilization']} says" if asked else "the rest is kept free"
    return f"{utilization:.0%}, {by}"


def _tell_cache(case: Case, split: Split, kv_cache_tokens: int) -> str:
    longest = kv_cache_tokens // case.held_tokens(split.max_model_len)
    mean = kv_cache_tokens // case.held_tokens(split.mean_tokens)
    most = f" (at most {'one' if split.max_num_seqs == 1 else f'{split.max_num_seqs:,}'} at a time)"
    return (
        f"The cache holds {kv_cache_tokens:,} tokens: {_count(longest)} of "
        f"{split.max_model_len:,} tokens, the longest allowed, or {mean:,} of "
        f"{split.mean_tokens:,}, the mean planned for{most if mean > split.max_num_seqs else ''}."
    )


def _tell_length(case: Case, split: Split, names: Mapping[str, str]) -> Iterator[str]:
    """Where requests may be shorter than the model could take, what decided that."""
    context = case.config.max_position_embeddings
    if case.demand.max_model_len is not None or split.max_model_len >= context:
        return
    field = names["max_model_len"]
    if split.max_model_len < case.default_model_len:
        yield f"The model's own limit of {context:,} tokens does not fit."
    else:
        yield f"The model's own limit is {context:,} tokens; {field} asks for more."


def _count(requests: int) -> str:
    return "one request" if requests == 1 else f"{requests:,} requests"
