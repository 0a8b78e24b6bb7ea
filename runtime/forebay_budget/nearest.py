"""Where nothing fits: the changes that would, and the sentence that says so."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from forebay_budget.case import (
    DEFAULT_UTILIZATION,
    Case,
    Split,
    choose_split,
    list_spread,
    spread_layers,
)
from forebay_budget.demand import SPEC_FIELDS, find_fault
from forebay_budget.explanation import count_gpus
from forebay_budget.fit import Misfit, Nearest
from forebay_budget.quantity import format_bytes, to_quantity
from forebay_budget.terms import GIB, MIB, admissible_tensor_parallel_sizes

_MOST_OPTIONS = 3


def explain_misfit(case: Case, names: Mapping[str, str]) -> Misfit:
    """Compare what is needed with what is allowed, and name what would fit.

    names are how fields are called; the case fits at no tensor parallelism.
    """
    closest = min(_least_splits(case), key=lambda split: _shortfall_bytes(case, split))
    needed_bytes = closest.num_gpus * closest.needed_bytes
    allowed_bytes = closest.num_gpus * _cap_bytes(case, closest.tp)
    where = "" if case.demand.device == "CPU" else f" on {count_gpus(closest.num_gpus)}"
    nearest = _find_nearest(case)
    advice = ", or ".join(_phrase(option, names) for option in nearest)
    weights_bytes = closest.num_gpus * closest.terms.weights_bytes
    message = (
        f"The model needs {format_bytes(needed_bytes)}{where} ("
        f"{format_bytes(weights_bytes)} for its weights, the rest to serve "
        f"{_asked(case, closest)}), but "
        f"{_limit(case, closest.tp, names)}; it would fit with {advice}."
    )
    return Misfit("InsufficientMemory", needed_bytes, allowed_bytes, nearest, message)


def _asked(case: Case, split: Split) -> str:
    """The least that was to be served."""
    if case.demand.max_num_seqs is None or split.max_num_seqs == 1:
        return f"a request of {split.max_model_len:,} tokens"
    return f"{split.max_num_seqs:,} requests of {split.mean_tokens:,} tokens at once"


def _least_splits(case: Case) -> list[Split]:
    """One split for each size, with the shortest length and the fewest requests allowed."""
    length = case.demand.max_model_len or case.least_model_len
    least = _change(case, max_num_seqs=case.demand.max_num_seqs or 1)
    return [least.split(tp, length) for tp in case.sizes()]


def _cap_bytes(case: Case, tp: int) -> int:
    return case.cap_bytes(tp) or 0


def _shortfall_bytes(case: Case, split: Split) -> int:
    return split.num_gpus * (split.needed_bytes - _cap_bytes(case, split.tp))


def _limit(case: Case, tp: int, names: Mapping[str, str]) -> str:
    """Say what allows no more: the budget, or the GPUs."""
    demand = case.demand
    allowed = format_bytes(tp * case.pp * _cap_bytes(case, tp))
    if demand.device == "CPU" or _cap_bytes(case, tp) < _cap_bytes(
        _change(case, budget_bytes=None), tp
    ):
        return f"{names['budget_bytes']} allows {allowed}"
    share = demand.gpu_memory_utilization or DEFAULT_UTILIZATION
    size = format_bytes(demand.gpu_memory_bytes or 0)
    each = f"{size} each" if tp * case.pp > 1 else size
    return f"{allowed} may be used there ({share:.0%} of {each})"


def _find_nearest(case: Case) -> tuple[Nearest, ...]:
    """The single changes that fit, the least intrusive first; else the budget and the GPUs."""
    single = [option for option in _single_changes(case) if _fits(case, option)]
    if single:
        return tuple(single[:_MOST_OPTIONS])
    return (_larger_everything(case),)


def _fits(case: Case, option: Nearest) -> bool:
    changed = _change(case, **dict(option.changes))
    is_meant = find_fault(changed.demand, case.config, SPEC_FIELDS) is None
    return is_meant and (choose_split(changed) or spread_layers(changed)) is not None


def _with_stages(case: Case) -> list[Case]:
    """The case with each number of stages that it may have."""
    return [case, *list_spread(case)]


def _change(case: Case, **changes: Any) -> Case:
    return replace(case, demand=replace(case.demand, **changes))


def _single_changes(case: Case) -> Iterator[Nearest]:
    demand, cases = case.demand, _with_stages(case)
    if demand.max_num_seqs is not None:
        length = demand.max_model_len or case.least_model_len
        num_seqs = max(each.most_seqs(tp, length) for each in cases for tp in each.sizes())
        if num_seqs > 0:
            yield _one("max_num_seqs", num_seqs)
    if demand.max_model_len is not None:
        length = max(each.longest(tp) for each in cases for tp in each.sizes())
        if length > 0:
            yield _one("max_model_len", length)
    if demand.budget_bytes is not None:
        yield from _larger_budget(case)
    if demand.device == "GPU":
        yield from _other_gpus(case)


def _larger_budget(case: Case) -> Iterator[Nearest]:
    """The least budget with which the GPUs that are there are enough."""
    free = _change(case, budget_bytes=None)
    needed = [
        split.num_gpus * split.needed_bytes
        for each in _with_stages(free)
        for split in _least_splits(each)
        if case.demand.device == "CPU" or split.needed_bytes <= _cap_bytes(free, split.tp)
    ]
    if needed:
        yield _one("budget_bytes", _round_up(min(needed)))


def _other_gpus(case: Case) -> Iterator[Nearest]:
    demand = case.demand
    memory = demand.gpu_memory_bytes or 1
    least_bytes = min(split.needed_bytes for split in _least_splits(case))
    share = demand.gpu_memory_utilization or DEFAULT_UTILIZATION
    if share < DEFAULT_UTILIZATION:
        larger = (Decimal(least_bytes) / memory).quantize(Decimal("0.01"), ROUND_CEILING)
        if larger <= DEFAULT_UTILIZATION:
            yield _one("gpu_memory_utilization", larger)
    sizes = admissible_tensor_parallel_sizes(case.config, case.quantization)
    if demand.tensor_parallel_size is not None:
        others = [
            _one("tensor_parallel_size", tp)
            for tp in sizes
            if tp * case.pp <= demand.max_gpus_per_node
        ]
        yield from [option for option in others if _fits(case, option)][:1]
    else:
        more = [
            _one("max_gpus_per_node", tp * case.pp)
            for tp in sizes
            if tp * case.pp > demand.max_gpus_per_node
        ]
        yield from [option for option in more if _fits(case, option)][:1]
    yield _one("gpu_memory_bytes", _round_up(int(least_bytes / share) + 1, GIB))


def _larger_everything(case: Case) -> Nearest:
    split = min(_least_splits(case), key=lambda split: split.needed_bytes)
    share = case.demand.gpu_memory_utilization or DEFAULT_UTILIZATION
    memory = _round_up(int(split.needed_bytes / share) + 1, GIB)
    # A share that is asked for is taken whole, so the budget must grant all of it.
    taken = (
        split.needed_bytes if case.demand.gpu_memory_utilization is None else int(share * memory)
    )
    budget = _round_up(split.num_gpus * taken)
    return Nearest((("gpu_memory_bytes", memory), ("budget_bytes", budget)))


def _one(field: str, value: int | Decimal) -> Nearest:
    return Nearest(((field, value),))


def _round_up(num_bytes: int, step_bytes: int = 0) -> int:
    """A number that reads well: whole GiB where they are many, else 64 MiB."""
    step = step_bytes or (GIB if num_bytes >= 16 * GIB else 64 * MIB)
    return -(-num_bytes // step) * step


def _phrase(option: Nearest, names: Mapping[str, str]) -> str:
    return " and ".join(_phrase_change(field, value, names) for field, value in option.changes)


def _phrase_change(field: str, value: int | Decimal, names: Mapping[str, str]) -> str:
    if field == "max_gpus_per_node":
        return f"{value} GPUs on one node"
    if field == "gpu_memory_bytes":
        return f"GPUs of {format_bytes(int(value))}"
    if field == "budget_bytes":
        return f"{names[field]} {to_quantity(int(value))}"
    return f"{names[field]} {value}"
