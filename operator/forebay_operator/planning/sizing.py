"""Fit the model into GPUs or a pod's memory: nodes and spec in, forebay_budget's answer out."""

from dataclasses import dataclass, replace

from forebay_budget.inspection import Inspection
from forebay_budget.quantity import parse_quantity
from forebay_budget.sizing import Demand, Fit, size
from forebay_budget.terms import MIB
from forebay_operator.planning.causes.cause import Cause
from forebay_operator.planning.gpus import MEMORY_LABEL, MOST_GPUS, GpuNode, read_gpu_nodes
from forebay_operator.planning.situation import Situation
from forebay_operator.service import Service


@dataclass(frozen=True)
class Sizing:
    """A fit, or why there is none."""

    fit: Fit | None = None
    cause: Cause | None = None
    least_gpu_memory_mib: int | None = None
    """Where nodes differ and the smaller GPUs are too small: pods must avoid those."""


def plan_sizing(situation: Situation, inspection: Inspection) -> Sizing:
    """Size the service for the device that it asks for."""
    service = situation.service
    if service.device == "CPU":
        return _size_on_cpu(service, inspection)
    nodes = read_gpu_nodes(situation.observed.nodes, service)
    if service.vram.gpu_memory_bytes is not None:
        most = max((node.num_gpus for node in nodes), default=MOST_GPUS)
        return _size(
            service, inspection, service.vram.budget_bytes, service.vram.gpu_memory_bytes, most
        )
    labelled = tuple(node for node in nodes if node.memory_mib > 0)
    if not labelled:
        return Sizing(cause=_unknown_memory(situation, bool(nodes)))
    return _size_on_nodes(service, inspection, labelled)


def _size_on_cpu(service: Service, inspection: Inspection) -> Sizing:
    """The pod cannot use more than its limit, whatever the budget grants."""
    budget_bytes, limit = service.vram.budget_bytes, service.pod_template.limits.get("memory")
    limit_bytes = None if limit is None else parse_quantity(limit)
    if limit_bytes is None or (budget_bytes is not None and budget_bytes <= limit_bytes):
        return _size(service, inspection, budget_bytes)
    sizing = _size(service, inspection, limit_bytes)
    if sizing.cause is None:
        return sizing
    message = sizing.cause.message.replace("vram.budget", "podTemplate.resources.limits.memory")
    return replace(sizing, cause=replace(sizing.cause, message=message))


def _size_on_nodes(service: Service, inspection: Inspection, nodes: tuple[GpuNode, ...]) -> Sizing:
    """Plan for the smallest GPU that will do: a pod may land on any node that has at least that."""
    least = nodes[0].memory_mib
    answer = Sizing()
    for memory_mib in sorted({node.memory_mib for node in nodes}):
        most = max(node.num_gpus for node in nodes if node.memory_mib >= memory_mib)
        answer = _size(service, inspection, service.vram.budget_bytes, memory_mib * MIB, most)
        if answer.fit is not None:
            bound = memory_mib if memory_mib > least else None
            return Sizing(fit=answer.fit, least_gpu_memory_mib=bound)
    return answer


def _size(
    service: Service,
    inspection: Inspection,
    budget_bytes: int | None,
    gpu_memory_bytes: int | None = None,
    most_gpus: int = MOST_GPUS,
) -> Sizing:
    engine = service.engine
    demand = Demand(
        device=service.device,
        gpu_memory_bytes=gpu_memory_bytes,
        budget_bytes=budget_bytes,
        max_gpus_per_node=most_gpus,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        tensor_parallel_size=engine.tensor_parallel_size,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        dtype=engine.dtype,
        quantization=service.model.quantization,
        kv_cache_dtype=engine.kv_cache_dtype,
    )
    answer = size(inspection, demand)
    if isinstance(answer, Fit):
        return Sizing(fit=answer)
    return Sizing(cause=Cause(answer.reason, answer.message))


def _unknown_memory(situation: Situation, has_gpu_nodes: bool) -> Cause:
    service = situation.service
    if not situation.observed.nodes_readable:
        seen = "The operator may not read nodes, so the memory of a GPU is unknown"
    elif has_gpu_nodes:
        seen = (
            f"Nodes offer {service.vram.gpu_resource}, but none says its GPU memory by the label "
            f"{MEMORY_LABEL}"
        )
    else:
        where = " among those that spec.podTemplate.nodeSelector picks"
        chosen = where if service.pod_template.node_selector else ""
        seen = f"No node{chosen} offers {service.vram.gpu_resource}"
    return Cause(
        "GPUMemoryUnknown",
        f"{seen}; set spec.vram.gpuMemory to the memory of one GPU, for example 80Gi, or "
        "spec.device to CPU.",
    )
