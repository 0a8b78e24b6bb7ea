"""Puts an engine together: from flags and a model's files to scheduler, runner and sampler.

Called once by the server's loader. All decisions about device, dtype, lengths and the KV cache's
size are made here, in this order, and none is changed later.
"""

from __future__ import annotations

import gc
import logging
import time
from functools import partial

import torch

from forebay_budget.inspection import ModelConfig
from forebay_budget.quantity import format_bytes
from forebay_budget.terms import Terms, kv_token_bytes
from forebay_runtime import warmup
from forebay_runtime.blocks import BlockPool
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine, Warmth
from forebay_runtime.host_memory import check_room
from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.memory import Meter, compare_terms, explain_out_of_memory, plan_terms
from forebay_runtime.models.decoder import Decoder, DecoderConfig, Placement
from forebay_runtime.runner import ModelRunner
from forebay_runtime.sampler import Sampler
from forebay_runtime.scheduler import Limits, Scheduler
from forebay_runtime.shapes import ShapeLog
from forebay_runtime.threads import usable_cpus

logger = logging.getLogger(__name__)

_MEAN_SHARE = 4
"""A request is taken to hold a quarter of max_model_len on average, as forebay_budget does."""


def build_engine(config: EngineConfig) -> Engine:
    """Read a model's weights and set everything up, cold.

    Raises: StartError or ModelError, whose one sentence leads to the cause.
    """
    torch.set_num_threads(usable_cpus())
    described = describe_model(config.model_path)
    placement = choose_placement(config, described)
    limits = choose_limits(config, described, placement)
    model = _load_model(described, placement, limits)
    num_blocks = _choose_num_blocks(config, model, limits)
    runner = _build_runner(model, num_blocks, config.block_size, limits)
    pool = BlockPool(num_blocks, config.block_size)
    scheduler = Scheduler(pool, limits, described.eos_token_ids)
    sampler = Sampler()
    planned = plan_terms(
        described.inspection, placement.device, _name(placement.dtype), limits, runner.cache_bytes
    )
    run_every_shape = partial(_run_every_shape, runner, sampler, planned)
    return Engine(
        scheduler, runner, sampler, run_every_shape, described.inspection.config.vocab_size
    )


def _run_every_shape(runner: ModelRunner, sampler: Sampler, planned: Terms) -> Warmth:
    """Warm an engine's parts, and measure their memory meanwhile."""
    start = time.perf_counter()
    meter = Meter(runner.model.placement.device)
    used_bytes = meter.used_bytes()
    meter.forget_peak()
    with explain_out_of_memory(
        "activations", "lower --max-num-batched-tokens, --max-num-seqs or the KV cache"
    ):
        slowest_seconds = warmup.warm_up(runner, sampler)
    weights_bytes, kv_cache_bytes = runner.model.num_bytes, runner.cache_bytes
    measured = Terms(
        weights_bytes=weights_bytes,
        kv_cache_bytes=kv_cache_bytes,
        activation_bytes=meter.used_bytes() + meter.peak_bytes() - used_bytes,
        overhead_bytes=max(0, used_bytes - weights_bytes - kv_cache_bytes),
    )
    vram_terms = compare_terms(planned, measured)
    logger.info("Warmed up seconds=%.1f", time.perf_counter() - start)
    return Warmth(slowest_seconds, vram_terms)


def choose_placement(config: EngineConfig, described: Description) -> Placement:
    """The device and dtype: a GPU where there is one; float32 on a CPU, else the checkpoint's.

    Raises: StartError if what was asked is not there.
    """
    has_gpu = torch.cuda.is_available()
    kind = config.device if config.device != "auto" else "cuda" if has_gpu else "cpu"
    if kind == "cuda" and not has_gpu:
        raise StartError("--device cuda was asked, but torch sees no GPU; choose --device cpu")
    name = config.dtype
    if name == "auto":
        name = "float32" if kind == "cpu" else described.inspection.config.dtype
    if config.kv_cache_dtype not in ("auto", name):
        raise StartError(
            f"--kv-cache-dtype {config.kv_cache_dtype} differs from the model's {name}, which this "
            "runtime does not support; choose auto"
        )
    return Placement(getattr(torch, name), torch.device(kind))


def choose_limits(config: EngineConfig, described: Description, placement: Placement) -> Limits:
    """The lengths and counts; max_model_len is what model and KV cache allow unless it is given.

    Raises: StartError if it is given and too long for either.
    """
    sizes = described.inspection.config
    asked, most = config.max_model_len, sizes.max_position_embeddings
    if asked is not None and asked > most:
        raise StartError(
            f"--max-model-len {asked} is more than the {most} positions that the model has"
        )
    length = asked or most
    if config.kv_cache_memory_bytes is not None:
        block_bytes = _block_bytes(sizes, placement, config.block_size)
        num_tokens = config.kv_cache_memory_bytes // block_bytes * config.block_size
        least = asked or config.block_size
        if num_tokens < least:
            raise StartError(
                f"--kv-cache-memory-bytes {config.kv_cache_memory_bytes} holds {num_tokens} "
                f"tokens, too few for one request of {least}; raise it to "
                f"{-(-least // config.block_size) * block_bytes} or lower --max-model-len"
            )
        length = min(length, num_tokens)
    return Limits(config.max_num_seqs, config.max_num_batched_tokens, length)


def _load_model(described: Description, placement: Placement, limits: Limits) -> Decoder:
    start = time.perf_counter()
    sizes = described.inspection.config
    checkpoint = open_checkpoint(described.path, described.blueprint)
    model_config = DecoderConfig(described.blueprint, limits.max_model_len)
    with explain_out_of_memory("weights", "choose a narrower --dtype or a smaller model"):
        model = Decoder(model_config, checkpoint, placement)
    del checkpoint
    gc.collect()
    logger.info(
        "Loaded weights architecture=%s dtype=%s size=%s threads=%d seconds=%.1f",
        sizes.architecture,
        _name(placement.dtype),
        format_bytes(model.num_bytes),
        torch.get_num_threads(),
        time.perf_counter() - start,
    )
    return model


def _choose_num_blocks(config: EngineConfig, model: Decoder, limits: Limits) -> int:
    """The KV cache in blocks: as given, or a default on a CPU, or what a GPU has left.

    Raises: StartError if a GPU has too little left for one request of max_model_len.
    """
    placement = model.placement
    block_bytes = _block_bytes(model.config.sizes, placement, config.block_size)
    if config.kv_cache_memory_bytes is not None:
        return config.kv_cache_memory_bytes // block_bytes
    most_blocks = -(-limits.max_model_len // config.block_size)
    if placement.device.type == "cpu":
        return max(most_blocks, -(-most_blocks * limits.max_num_seqs // _MEAN_SHARE))
    meter = Meter(placement.device)
    runner = _build_runner(model, most_blocks, config.block_size, limits)
    meter.forget_peak()
    with explain_out_of_memory("activations", "lower --max-num-batched-tokens or --max-num-seqs"):
        warmup.run_largest(runner, Sampler())
    allowed = int(config.gpu_memory_utilization * meter.total_bytes())
    left = allowed - meter.used_bytes() + runner.cache_bytes
    num_blocks = left // block_bytes
    if num_blocks < most_blocks:
        raise StartError(
            f"--gpu-memory-utilization {config.gpu_memory_utilization} leaves "
            f"{format_bytes(max(0, left))} for the KV cache, and one request of --max-model-len "
            f"{limits.max_model_len} needs {format_bytes(most_blocks * block_bytes)}; raise the "
            "former or lower the latter"
        )
    return num_blocks


def _build_runner(model: Decoder, num_blocks: int, block_size: int, limits: Limits) -> ModelRunner:
    knob = "lower --kv-cache-memory-bytes or --max-model-len"
    if model.placement.device.type == "cpu":
        block_bytes = _block_bytes(model.config.sizes, model.placement, block_size)
        check_room(num_blocks * block_bytes, "KV cache", knob)
    with explain_out_of_memory("KV cache", knob):
        cache = model.new_cache(num_blocks, block_size)
    return ModelRunner(model, cache, limits, ShapeLog())


def _block_bytes(sizes: ModelConfig, placement: Placement, block_size: int) -> int:
    return block_size * kv_token_bytes(sizes, 1, _name(placement.dtype))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
