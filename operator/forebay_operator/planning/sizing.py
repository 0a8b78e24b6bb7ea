"""Fit the model into GPUs or a pod's memory: nodes and spec in, forebay_budget's answer out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from forebay_budget.inspection import Inspection
from forebay_budget.quantity import format_bytes, parse_quantity, to_quantity
from forebay_budget.sizing import Demand, Fit, Misfit, size
from forebay_budget.terms import GIB, MIB
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.causes.gpu_nodes import (
    describe_excluded,
    describe_nodes,
    explain_no_gpus,
)
from forebay_operator.planning.nodes.gpus import MOST_GPUS, GpuNode, read_gpu_nodes
from forebay_operator.planning.nodes.pinning import build_pin
from forebay_operator.planning.nodes.selector import Term, write_selector
from forebay_operator.planning.situation import Manifest, Situation
from forebay_operator.service import Service

_MOST_NAMES = 16
_BUDGET_SLACK_PERCENT = 5
"""A GPU that is sold as 80 GB has a little less than 80Gi."""
_SLACK_PERCENT = 3
"""Drivers of one GPU differ by a little in what they call its memory: a pin leaves them room."""


@dataclass(frozen=True)
class Models:
    """What is sized: the served model and, where one is asked for, its draft model."""

    served: Inspection
    draft: Inspection | None = None


@dataclass(frozen=True)
class Sizing:
    """A fit, or why there is none."""

    fit: Fit | None = None
    cause: Cause | None = None
    pin: tuple[Term, ...] = ()
    """Node selector terms of which one must hold; empty where pods may go anywhere."""
    nodes: Manifest | None = None
    """What `status.plan` says of the nodes that were planned for."""


def plan_sizing(situation: Situation, models: Models) -> Sizing:
    """Size the service for the device that it asks for."""
    service = situation.service
    if service.device == "CPU":
        return _size_on_cpu(service, models)
    observed = situation.observed
    found = read_gpu_nodes(observed.nodes, observed.resource_slices, service)
    nodes = tuple(node for node in found if not node.exclusion)
    if service.vram.gpu_memory_bytes is not None:
        return _size_as_told(service, models, nodes, service.vram.gpu_memory_bytes)
    if not any(node.memory_mib for node in nodes):
        return Sizing(cause=explain_no_gpus(situation, found))
    if cause := _judge_budget(service, nodes):
        return Sizing(cause=cause)
    return _size_on_nodes(service, models, found)


def _size_on_cpu(service: Service, models: Models) -> Sizing:
    """The pod cannot use more than its limit, whatever the budget grants."""
    budget_bytes, limit = service.vram.budget_bytes, service.pod_template.limits.get("memory")
    limit_bytes = None if limit is None else parse_quantity(limit)
    if limit_bytes is None or (budget_bytes is not None and budget_bytes <= limit_bytes):
        return _conclude(_size(service, models, budget_bytes))
    sizing = _conclude(_size(service, models, limit_bytes))
    if sizing.cause is None:
        return sizing
    message = sizing.cause.message.replace("vram.budget", "podTemplate.resources.limits.memory")
    return replace(sizing, cause=replace(sizing.cause, message=message))


def _size_as_told(
    service: Service, models: Models, nodes: tuple[GpuNode, ...], memory_bytes: int
) -> Sizing:
    """The user's word on a GPU's memory counts, also where nodes will only come.

    Of nodes that are there, those that labels call too small are left out if that leaves any.
    """
    least_mib = memory_bytes * (100 - _SLACK_PERCENT) // 100 // MIB
    small, large = _part(nodes, lambda node: 0 < node.memory_mib < least_mib)
    most = max((node.num_gpus for node in large or nodes), default=MOST_GPUS)
    answer = _size(service, models, service.vram.budget_bytes, memory_bytes, most)
    if isinstance(answer, Misfit):
        return _conclude(answer)
    chosen = [node for node in large if node.num_gpus >= answer.num_gpus]
    pin = build_pin(chosen, small, _least_memory_mib(answer, memory_bytes)) if small else ()
    return Sizing(fit=answer, pin=pin, nodes=_name_nodes(chosen, memory_bytes, pin))


def _size_on_nodes(service: Service, models: Models, found: tuple[GpuNode, ...]) -> Sizing:
    """Try each size of GPU: the longest requests count first, then the fewest and smallest GPUs."""
    nodes = [node for node in found if not node.exclusion]
    fits: list[tuple[int, int, int, Fit]] = []
    misfits: list[Misfit] = []
    for memory_mib in sorted({node.memory_mib for node in nodes} - {0}):
        most = max(node.num_gpus for node in nodes if node.memory_mib == memory_mib)
        answer = _size(service, models, service.vram.budget_bytes, memory_mib * MIB, most)
        if isinstance(answer, Fit):
            rank = (-answer.max_model_len, answer.num_gpus, memory_mib)
            fits.append((*rank, answer))
        else:
            misfits.append(answer)
    if fits:
        *_, memory_mib, fit = min(fits, key=lambda entry: entry[:3])
        return _choose_nodes(fit, memory_mib * MIB, nodes)
    closest = max(misfits, key=_closeness)
    return _conclude(replace(closest, message=f"{closest.message} {_tell_counted(found)}"))


def _choose_nodes(fit: Fit, memory_bytes: int, nodes: list[GpuNode]) -> Sizing:
    least, least_mib = fit.num_gpus, _least_memory_mib(fit, memory_bytes)
    chosen, others = _part(nodes, lambda one: one.num_gpus >= least and one.memory_mib >= least_mib)
    pin = build_pin(chosen, [node for node in others if node.num_advertised >= least], least_mib)
    told = f"{fit.explanation} {_tell_chosen(chosen, others)}"
    return Sizing(replace(fit, explanation=told), None, pin, _name_nodes(chosen, memory_bytes, pin))


def _part(
    nodes: Iterable[GpuNode], is_first: Callable[[GpuNode], bool]
) -> tuple[list[GpuNode], list[GpuNode]]:
    """Nodes for which it holds, and the others; to look one up among thousands costs seconds."""
    parts: tuple[list[GpuNode], list[GpuNode]] = ([], [])
    for node in nodes:
        parts[0 if is_first(node) else 1].append(node)
    return parts


def _least_memory_mib(fit: Fit, memory_bytes: int) -> int:
    """What a GPU must have for this plan: what it takes and a little, or what it was made for."""
    needed_bytes = -(-fit.terms.total_bytes * 100 // (100 - _SLACK_PERCENT))
    return min(memory_bytes, needed_bytes) // MIB


def _closeness(misfit: Misfit) -> tuple[bool, float]:
    """A shortage tells more than a field that only this kind of node cannot follow."""
    is_shortage = misfit.reason == "InsufficientMemory"
    return is_shortage, misfit.allowed_bytes / max(1, misfit.needed_bytes)


def _judge_budget(service: Service, nodes: tuple[GpuNode, ...]) -> Cause | None:
    """A budget that no node has was meant for other nodes; the size of a GPU is often rounded."""
    budget_bytes = service.vram.budget_bytes
    asked = _asked_gpus(service) or MOST_GPUS
    offers = [(node.memory_mib * MIB * min(asked, node.num_gpus), node) for node in nodes]
    most_bytes, largest = max(offers, key=lambda offer: offer[0])
    if budget_bytes is None or budget_bytes * (100 - _BUDGET_SLACK_PERCENT) <= most_bytes * 100:
        return None
    return Cause(
        "InvalidField",
        f"vram.budget is {format_bytes(budget_bytes)}, but a replica can have at most "
        f"{format_bytes(most_bytes)}: {describe_nodes([largest])} is the most that its pods may "
        f"use; set at most {most_bytes // GIB}Gi, or leave it out to use all.",
    )


def _asked_gpus(service: Service) -> int | None:
    """The GPUs that the spec names; None where it leaves their number open."""
    if service.engine.tensor_parallel_size is None:
        return None
    return service.engine.tensor_parallel_size * (service.engine.pipeline_parallel_size or 1)


def _tell_chosen(chosen: list[GpuNode], others: list[GpuNode]) -> str:
    without = f"; {describe_nodes(others)} will not do" if others else ""
    return f"Nodes that will do: {describe_nodes(chosen)}{without}."


def _tell_counted(found: tuple[GpuNode, ...]) -> str:
    counted = describe_nodes(node for node in found if not node.exclusion)
    excluded = describe_excluded(found)
    return f"Its pods may use {counted}{f'; not counted: {excluded}' if excluded else ''}."


def _name_nodes(chosen: list[GpuNode], memory_bytes: int, pin: tuple[Term, ...]) -> Manifest:
    products = sorted({node.reading.product for node in chosen} - {""})
    told = {
        "gpuMemory": to_quantity(memory_bytes),
        "gpuProducts": products[:_MOST_NAMES],
        "nodes": [node.name for node in chosen][:_MOST_NAMES],
        "nodeSelector": write_selector(pin),
    }
    return {name: value for name, value in told.items() if value}


def _conclude(answer: Fit | Misfit) -> Sizing:
    if isinstance(answer, Fit):
        return Sizing(fit=answer)
    return Sizing(cause=Cause(answer.reason, answer.message))


def _size(
    service: Service,
    models: Models,
    budget_bytes: int | None,
    gpu_memory_bytes: int | None = None,
    most_gpus: int = MOST_GPUS,
) -> Fit | Misfit:
    engine = service.engine
    demand = Demand(
        device=service.device,
        gpu_memory_bytes=gpu_memory_bytes,
        budget_bytes=budget_bytes,
        max_gpus_per_node=most_gpus,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        dtype=engine.dtype,
        quantization=service.model.quantization,
        kv_cache_dtype=engine.kv_cache_dtype,
        num_speculative_tokens=engine.speculative.num_tokens if engine.speculative else None,
        draft=models.draft,
    )
    return size(models.served, demand)
