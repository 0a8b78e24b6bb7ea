"""What each rank makes of its own part of a model: weights, cache, runner, and the room it has.

Rank 0's assembly and the other ranks call the same; a model that one rank holds is the case of one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from forebay_budget.quantity import format_bytes
from forebay_budget.stages import split_layers
from forebay_budget.terms import (
    kv_token_bytes,
)
from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.usable_cpus import usable_cpus
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.description import Description
from forebay_runtime.models.decoder import Decoder, DecoderConfig
from forebay_runtime.models.link import Link
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.shard import Stage
from forebay_runtime.models.topology import Topology
from forebay_runtime.runner.decode_graphs import CudaRecorder
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.start.gpu_room import allowed_bytes, cache_room_bytes
from forebay_runtime.start.host_memory import check_room
from forebay_runtime.start.memory import cpu_activation
from forebay_runtime.start.meter import Meter
from forebay_runtime.start.out_of_memory import explain_out_of_memory

logger = logging.getLogger(__name__)


def set_threads(num_ranks: int) -> None:
    """Share the CPUs of this pod among its ranks."""
    torch.set_num_threads(max(1, usable_cpus() // num_ranks))


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


def choose_stage(described: Description, topology: Topology, rank: int) -> Stage:
    """The layers of a rank."""
    layers = split_layers(described.inspection, topology.num_stages)[topology.stage(rank)]
    return Stage(layers.start, layers.stop, described.inspection.config.num_layers)


def load_model(
    described: Description, placement: Placement, limits: Limits, link: Link, stage: Stage
) -> Decoder:
    """Read a rank's part of the weights.

    Raises: StartError or ModelError.
    """
    start = time.perf_counter()
    sizes = described.inspection.config
    checkpoint = open_checkpoint(described.path, described.blueprint)
    model_config = DecoderConfig(described.blueprint, limits.max_model_len)
    with explain_out_of_memory("weights", "choose a narrower --dtype or a smaller model"):
        model = Decoder(model_config, checkpoint, placement, link, stage)
    logger.info(
        "Loaded weights architecture=%s dtype=%s quantization=%s size=%s threads=%d seconds=%.1f",
        sizes.architecture,
        placement.dtype_name,
        f"INT{placement.rounded_bits}"
        if placement.rounded_bits
        else described.inspection.quantization,
        format_bytes(model.num_bytes),
        torch.get_num_threads(),
        time.perf_counter() - start,
    )
    return model


def count_room(config: EngineConfig, runner: ModelRunner) -> int:
    """The blocks that this rank's GPU has left beside all that it holds but the cache."""
    meter = Meter(runner.model.placement.device)
    most_bytes = allowed_bytes(config.gpu_memory_utilization, meter.total_bytes())
    used_bytes = meter.used_bytes() + meter.peak_bytes()
    room_bytes = cache_room_bytes(most_bytes, used_bytes, runner.cache_bytes)
    return room_bytes * runner.num_blocks // runner.cache_bytes


_STEP_KNOB = "lower --max-num-batched-tokens or --max-num-seqs"


def build_runner(
    config: EngineConfig,
    model: Decoder,
    num_blocks: int,
    limits: Limits,
    runner_class: Callable[..., ModelRunner] = ModelRunner,
) -> ModelRunner:
    """This rank's cache, and a runner over it.

    Raises: StartError if there is too little memory.
    """
    knob = "lower --kv-cache-memory-bytes or --max-model-len"
    # A trial's cache and graphs are let go by now, but not by torch's allocator.
    meter = Meter(model.placement.device)
    meter.give_back()
    if model.placement.device.type == "cpu":
        rank_bytes = meter.used_bytes() + _cache_bytes(config, model, num_blocks)
        check_room(config.num_ranks * rank_bytes, "KV cache beside the model", knob)
        topology = Topology(config.tensor_parallel_size, config.pipeline_parallel_size)
        rank_bytes += cpu_activation(model.config.sizes, topology, model.placement, limits)[0]
        step = "largest step beside the model and the KV cache"
        check_room(config.num_ranks * rank_bytes, step, _STEP_KNOB)
    with explain_out_of_memory("KV cache", knob):
        cache = model.new_cache(num_blocks, config.block_size)
    runner = runner_class(
        model,
        cache,
        limits,
        is_batch_invariant=config.batch_invariant,
        recorder=CudaRecorder() if is_captured(config, model) else None,
    )
    if runner.is_native:
        # Steps have threads of their own, and little is left for torch's.
        torch.set_num_threads(1)
    return runner


def is_captured(config: EngineConfig, model: Decoder) -> bool:
    """Are decode steps captured as graphs?"""
    if model.placement.device.type != "cuda" or config.enforce_eager:
        return False
    # Stages hand each other their states between kernels, which a graph would have to hold too.
    if config.pipeline_parallel_size > 1:
        return False
    if model.waits_for_device:
        logger.warning(
            "Captured no decode steps, which makes them slower: no kernel takes this mixture's "
            "experts as they are packed"
        )
        return False
    return True


def capture_graphs(runner: ModelRunner) -> None:
    """Capture its decode steps, where it captures any.

    Raises: StartError if there is too little memory.
    """
    knob = "lower --max-num-seqs, or do without them by --enforce-eager"
    with explain_out_of_memory("CUDA graphs", knob):
        runner.capture_graphs()


def _cache_bytes(config: EngineConfig, model: Decoder, num_blocks: int) -> int:
    """What this rank's cache will take."""
    own = replace(model.config.sizes, num_layers=model.stage.stop - model.stage.start)
    dtype = model.placement.kv_cache_dtype
    token_bytes = kv_token_bytes(own, config.tensor_parallel_size, dtype)
    return num_blocks * config.block_size * token_bytes
