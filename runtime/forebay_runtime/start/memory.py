"""The memory terms of a running engine: as forebay_budget plans them, and as they turned out."""

from __future__ import annotations

import logging

from forebay_budget.cpu_terms import (
    cpu_attention_token_bytes,
    cpu_overhead_bytes,
    is_program,
    program_bytes,
)
from forebay_budget.inspection import Inspection, ModelConfig
from forebay_budget.quantity import format_bytes
from forebay_budget.stages import longest_config, stage_weights_bytes
from forebay_budget.terms import (
    CUDA_CONTEXT_BYTES,
    GRAPHS_BYTES,
    Terms,
    activation_bytes,
    gpu_overhead_bytes,
    kv_token_bytes,
)
from forebay_runtime.engine import VramTerm
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.topology import Topology
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.start.meter import Meter
from forebay_runtime.start.phases import Phase, Start

logger = logging.getLogger(__name__)

_TOLERATED_SHARE = 0.05
_TOLERATED_TERM_BYTES = 256 * 1024**2


def plan_terms(
    inspection: Inspection,
    topology: Topology,
    placement: Placement,
    limits: Limits,
    kv_cache_bytes: int,
) -> Terms:
    """The most that each term takes of any rank, by the formulas that sized the pod.

    kv_cache_bytes: of a rank with the most layers.
    """
    tp, pp = topology.num_shards, topology.num_stages
    config, num_tokens = longest_config(inspection, pp), limits.max_num_batched_tokens
    dtype = placement.dtype_name
    quantization = f"INT{placement.rounded_bits}" if placement.rounded_bits else "None"
    activation = activation_bytes(config, tp, dtype, num_tokens, limits.max_num_sampled)
    overhead, native = gpu_overhead_bytes(topology.num_ranks), placement.native
    if placement.device.type == "cpu":
        fixed, token_bytes = cpu_activation(config, topology, placement, limits)
        num_cached_tokens = kv_cache_bytes // kv_token_bytes(config, tp, placement.kv_cache_dtype)
        activation = fixed + num_cached_tokens * token_bytes
        overhead = cpu_overhead_bytes(
            inspection.config,
            kv_cache_bytes + activation,
            is_native=native is not None,
            is_rounded=placement.rounded_bits is not None,
        )
    if native is not None:
        dtype = str(native.dtype).removeprefix("torch.")
    weights = stage_weights_bytes(inspection, pp, tp, dtype, quantization, native is not None)
    return Terms(weights, kv_cache_bytes, activation, overhead)


def cpu_activation(
    sizes: ModelConfig, topology: Topology, placement: Placement, limits: Limits
) -> tuple[int, int]:
    """Bytes of a step's work on a CPU, and as many more for each cached token."""
    num_tokens, num_sampled = limits.max_num_batched_tokens, limits.max_num_sampled
    dtype, kv_dtype = placement.dtype_name, placement.kv_cache_dtype
    if placement.native is not None and topology.num_ranks == 1 and is_program(sizes, dtype):
        return program_bytes(sizes, num_tokens, num_sampled), 0
    return (
        activation_bytes(sizes, topology.num_shards, dtype, num_tokens, num_sampled),
        cpu_attention_token_bytes(sizes, dtype, kv_dtype, num_tokens),
    )


def split_overhead(
    overhead_bytes: int, start: Start, graphs_bytes: int, num_ranks: int = 1
) -> tuple[VramTerm, ...]:
    """A GPU's overhead in its parts; what nothing else explains is communication's."""
    context_bytes = start.taken_bytes.get(Phase.CONTEXT, 0)
    communication_bytes = gpu_overhead_bytes(num_ranks) - CUDA_CONTEXT_BYTES - GRAPHS_BYTES
    rest_bytes = max(0, overhead_bytes - context_bytes - graphs_bytes)
    return (
        VramTerm("context", CUDA_CONTEXT_BYTES, context_bytes),
        VramTerm("communication", communication_bytes, rest_bytes),
        VramTerm("graphs", GRAPHS_BYTES, graphs_bytes),
    )


class Measurement:
    """The memory of a rank while its runner is warmed, from when this is made."""

    def __init__(self, runner: ModelRunner, draft: ModelRunner | None = None) -> None:
        """draft: a draft model's, on the same device."""
        self._runner = runner
        self._draft = draft
        self._meter = Meter(runner.model.placement.device)
        self._used_bytes = self._meter.used_bytes()
        self._kept_bytes = self._meter.kept_bytes()
        self._activation_bytes = self._loaded_bytes = 0
        self._meter.forget_peak()

    def end_shapes(self) -> None:
        """All shapes were run, and nothing was captured yet."""
        kept_bytes = self._meter.kept_bytes() - self._kept_bytes
        self._activation_bytes = kept_bytes + self._meter.peak_bytes()
        # Kernels come to a GPU with their first launch, and libraries with their first call.
        self._loaded_bytes = self._meter.used_bytes() - self._used_bytes - kept_bytes

    def terms(self) -> Terms:
        """What each was, once graphs are captured."""
        runner, drafts = self._runner, [self._draft] if self._draft is not None else []
        held_bytes = sum(each.model.num_bytes for each in (runner, *drafts))
        if runner.model.placement.device.type != "cpu":
            # A CPU gives a cache's pages as they are written to, which no request has done yet.
            held_bytes += sum(each.cache_bytes for each in (runner, *drafts))
        return Terms(
            weights_bytes=runner.model.num_bytes,
            kv_cache_bytes=runner.cache_bytes,
            activation_bytes=self._activation_bytes,
            overhead_bytes=max(0, self._used_bytes - held_bytes)
            + max(0, self._loaded_bytes)
            + sum(each.graphs_bytes for each in (runner, *drafts)),
            draft_weights_bytes=sum(each.model.num_bytes for each in drafts),
            draft_kv_cache_bytes=sum(each.cache_bytes for each in drafts),
        )


def _names_of(planned: Terms) -> tuple[str, ...]:
    drafts = ("draft_weights", "draft_kv_cache") if planned.draft_weights_bytes else ()
    return ("weights", "kv_cache", *drafts, "activation", "overhead")


def compare_terms(planned: Terms, measured: Terms) -> tuple[VramTerm, ...]:
    """Put both beside each other, and log what is apart by more than a plan may be."""
    terms = tuple(
        VramTerm(name, getattr(planned, f"{name}_bytes"), getattr(measured, f"{name}_bytes"))
        for name in _names_of(planned)
    )
    for term in terms:
        log = logger.info
        if abs(term.measured_bytes - term.planned_bytes) > _TOLERATED_TERM_BYTES:
            log = logger.warning
        log(
            "Measured memory term=%s planned=%s measured=%s",
            term.name,
            format_bytes(term.planned_bytes),
            format_bytes(term.measured_bytes),
        )
    if measured.total_bytes > planned.total_bytes * (1 + _TOLERATED_SHARE):
        logger.warning(
            "Exceeded the planned memory planned=%s measured=%s",
            format_bytes(planned.total_bytes),
            format_bytes(measured.total_bytes),
        )
    return terms
