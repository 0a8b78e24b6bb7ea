"""The memory terms of a running engine: as forebay_budget plans them, and as they turned out.

On a CPU they are read from the process's resident memory, on a GPU from torch's allocator and the
driver.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from forebay_budget.inspection import Inspection
from forebay_budget.quantity import format_bytes
from forebay_budget.stages import largest_stage
from forebay_budget.terms import (
    CUDA_CONTEXT_BYTES,
    GRAPHS_BYTES,
    Terms,
    activation_bytes,
    cpu_attention_token_bytes,
    cpu_overhead_bytes,
    gpu_overhead_bytes,
    kv_token_bytes,
    weights_bytes,
)
from forebay_kernels.gpu.architecture import architecture_of
from forebay_runtime.config import StartError
from forebay_runtime.engine import VramTerm
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.topology import Topology
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.start.phases import Phase, Start

logger = logging.getLogger(__name__)

_TOO_LITTLE = ("can't allocate memory", "out of memory", "status_alloc_failed")
"""What torch, on a CPU, CUDA's driver, and its libraries say."""
_TOLERATED_SHARE = 0.05
_TOLERATED_TERM_BYTES = 256 * 1024**2


def plan_terms(
    inspection: Inspection,
    topology: Topology,
    placement: Placement,
    limits: Limits,
    kv_cache_bytes: int,
) -> Terms:
    """The terms of the largest rank by the formulas that sized the pod."""
    part, tp = largest_stage(inspection, topology.num_stages), topology.num_shards
    config, num_tokens = part.config, limits.max_num_batched_tokens
    dtype = str(placement.dtype).removeprefix("torch.")
    quantization = f"INT{placement.rounded_bits}" if placement.rounded_bits else "None"
    activation = activation_bytes(config, tp, dtype, num_tokens, limits.max_num_seqs)
    overhead = gpu_overhead_bytes(topology.num_ranks)
    if placement.device.type == "cpu":
        kv_dtype = placement.kv_cache_dtype
        num_cached_tokens = kv_cache_bytes // kv_token_bytes(config, tp, kv_dtype)
        token_bytes = cpu_attention_token_bytes(config, dtype, kv_dtype, num_tokens)
        activation += num_cached_tokens * token_bytes
        overhead = cpu_overhead_bytes(part, kv_cache_bytes + activation)
    weights = weights_bytes(part, tp, dtype, quantization)
    return Terms(weights, kv_cache_bytes, activation, overhead)


class Meter:
    """Memory in use, and the peak since it was last asked to forget."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cpu = device.type == "cpu"

    def used_bytes(self) -> int:
        """What the process holds: resident on a CPU; on a GPU all that is not free there.

        Of a GPU that was not opened yet nothing is.
        """
        if self._is_cpu:
            return _status_bytes("VmRSS")
        if not torch.cuda.is_initialized():
            return 0
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def kept_bytes(self) -> int:
        """What is used or kept for tensors: all of the process on a CPU."""
        if self._is_cpu:
            return self.used_bytes()
        return torch.cuda.memory_reserved(self._device)

    def total_bytes(self) -> int:
        """All memory of the GPU."""
        return torch.cuda.mem_get_info(self._device)[1]

    def forget_peak(self) -> None:
        """Let the next peak count from now."""
        if not self._is_cpu:
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            logger.warning("Could not reset the peak of resident memory, it includes loading")

    def peak_bytes(self) -> int:
        """How much more than used_bytes was held for a moment."""
        if self._is_cpu:
            return _status_bytes("VmHWM") - _status_bytes("VmRSS")
        # Of what the allocator holds: what a step gave back to it stays in use.
        return torch.cuda.max_memory_reserved(self._device) - torch.cuda.memory_reserved(
            self._device
        )

    def give_back(self) -> None:
        """Give back to the device what nobody holds any more."""
        if not self._is_cpu:
            gc.collect()
            torch.cuda.empty_cache()


def open_device(device: torch.device) -> None:
    """Make a GPU's context, and what its libraries hold from their first use on.

    Raises: StartError if there is too little memory for it, or the GPU is too old for the kernels.
    """
    if device.type != "cuda":
        return
    with explain_out_of_memory("CUDA context", "end what else uses this GPU, or choose another"):
        # First, as a GPU that torch has no kernels for either fails at the next line.
        try:
            architecture_of(device)
        except ValueError as error:
            raise StartError(f"{error}; choose another GPU, or --device cpu") from error
        one = torch.ones(1, 1, device=device)
        torch.mm(one, one)
        torch.cuda.synchronize(device)


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

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
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
        runner = self._runner
        held_bytes = runner.model.num_bytes + runner.cache_bytes
        return Terms(
            weights_bytes=runner.model.num_bytes,
            kv_cache_bytes=runner.cache_bytes,
            activation_bytes=self._activation_bytes,
            overhead_bytes=max(0, self._used_bytes - held_bytes)
            + max(0, self._loaded_bytes)
            + runner.graphs_bytes,
        )


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE")


@contextmanager
def explain_out_of_memory(term: str, knob: str) -> Iterator[None]:
    """Turn an allocation that failed into a sentence with the term that asked and what to change.

    Raises: StartError.
    """
    try:
        yield
    except MemoryError as error:
        raise _out_of_memory(term, knob, error) from error
    except RuntimeError as error:
        cause = _find_out_of_memory(error)
        if cause is None:
            raise
        raise _out_of_memory(term, knob, cause) from error


def _find_out_of_memory(error: BaseException | None) -> BaseException | None:
    """The error itself, or one that it came of: a capture that runs out of memory ends with its
    own, and the driver's has no class."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, torch.OutOfMemoryError) or any(each in text for each in _TOO_LITTLE):
            return error
        error = error.__cause__ or error.__context__
    return None


def _out_of_memory(term: str, knob: str, error: BaseException) -> StartError:
    detail = str(error).splitlines()[0] if str(error) else type(error).__name__
    return StartError(f"There is too little memory for the {term}; {knob} ({detail})")


def compare_terms(planned: Terms, measured: Terms) -> tuple[VramTerm, ...]:
    """Put both beside each other, and log what is apart by more than a plan may be."""
    terms = tuple(
        VramTerm(name, getattr(planned, f"{name}_bytes"), getattr(measured, f"{name}_bytes"))
        for name in ("weights", "kv_cache", "activation", "overhead")
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
