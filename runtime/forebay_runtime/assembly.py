"""Puts an engine together: from flags and a model's files to scheduler, runner and sampler.

Called once by the server's loader. All decisions about device, dtype, lengths and the KV cache's
size are made here, in this order, and none is changed later.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from forebay_budget.stages import longest_config, split_layers
from forebay_budget.terms import kv_token_bytes
from forebay_kernels.usable_cpus import usable_cpus
from forebay_runtime.config import EngineConfig
from forebay_runtime.drafting.draft_model import DraftModel
from forebay_runtime.engine import Engine, Widths
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.models.decoder import Decoder
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.topology import Topology
from forebay_runtime.parallel.ensemble import Ensemble
from forebay_runtime.parallel.followers import Followers, start_followers
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.admission import Rules
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.scheduling.speculation import Speculation, SpeculationRules
from forebay_runtime.speculative.ngram import NgramProposer
from forebay_runtime.start import warmup
from forebay_runtime.start.capacity import (
    BlockShape,
    choose_limits,
    choose_num_blocks,
    fit_limits,
)
from forebay_runtime.start.draft import build_draft, plan_draft
from forebay_runtime.start.gpu_room import allowed_bytes
from forebay_runtime.start.host_memory import memory_limit
from forebay_runtime.start.kernel_preparation import compile_kernels
from forebay_runtime.start.memory import cpu_activation, plan_terms
from forebay_runtime.start.meter import Meter
from forebay_runtime.start.out_of_memory import explain_out_of_memory
from forebay_runtime.start.phases import Phase, Start
from forebay_runtime.start.placement_choice import choose_placement
from forebay_runtime.start.rank_assembly import (
    build_runner,
    capture_graphs,
    choose_stage,
    count_room,
    load_model,
    open_device,
    set_threads,
)
from forebay_runtime.start.refusals import check_topology
from forebay_runtime.warming import Warming

logger = logging.getLogger(__name__)

_CPU_MEMORY_SHARE = 0.9
"""What a default KV cache and all else may fill of the memory; the rest is the system's."""


def build_engine(
    config: EngineConfig,
    end_tokens: frozenset[int] | None = None,
    followers: Followers | None = None,
    described: Description | None = None,
) -> Engine:
    """Read a model's weights and set everything up, cold.

    end_tokens: what ends an answer, as the tokenizer knows it; by default what the model's files
    name. followers: the other ranks, by default started here where the configuration asks for some.
    described: the model at the configuration's path, where its headers were read already.
    Raises: StartError, ModelError or RankLost, whose one sentence leads to the cause.
    """
    topology = Topology(config.tensor_parallel_size, config.pipeline_parallel_size)
    set_threads(topology.num_ranks)
    described = described or describe_model(config.model_path)
    check_topology(topology, described.inspection.config, config.quantization)
    if end_tokens is None:
        end_tokens = described.eos_token_ids
    placement = choose_placement(config, described)
    start = Start(Meter(placement.device).used_bytes)
    with start.phase(Phase.CONTEXT):
        open_device(placement.device)
    with start.phase(Phase.KERNELS):
        compile_kernels(config, described, placement)
    draft = plan_draft(config, described)
    if draft is not None:
        compile_kernels(draft.config, draft.described, draft.placement)
    ensemble = Ensemble(config, topology, followers or start_followers(config))
    shape = _block_shape(config, described, placement)
    if draft is not None:
        shape = replace(shape, draft_bytes=draft.block_bytes)
    limits = choose_limits(config, described.inspection.config.max_position_embeddings, shape)
    with start.phase(Phase.WEIGHTS):
        ensemble.begin_load(limits, placement.device)
        stage = choose_stage(described, topology, 0)
        model = load_model(described, placement, limits, ensemble.link, stage)
        draft_weights = draft.load(limits) if draft is not None else None
        ensemble.wait()
    with start.phase(Phase.TRIAL):
        num_blocks = _choose_num_blocks(config, model, limits, shape, ensemble)
    limits = fit_limits(config, limits, num_blocks, shape)
    with start.phase(Phase.KV_CACHE):
        runner = _build_runners(config, model, num_blocks, limits, ensemble)
        drafting = None
        if draft is not None and draft_weights is not None:
            drafting = build_draft(draft, draft_weights, num_blocks, limits)
    scheduler = Scheduler(
        BlockPool(num_blocks, config.block_size),
        limits,
        end_tokens,
        choose_rules(config, model.window),
        speculation=build_speculation(config, limits, placement, drafting),
    )
    sampler = Sampler(
        end_tokens,
        is_batch_invariant=config.batch_invariant,
        num_threads=usable_cpus() // topology.num_ranks,
    )
    planned = plan_terms(
        described.inspection, topology, placement, limits, num_blocks * shape.num_bytes
    )
    if draft is not None:
        own = plan_terms(
            draft.described.inspection,
            topology,
            draft.placement,
            draft.limits(limits),
            num_blocks * shape.draft_bytes,
        )
        planned = planned.with_draft(own)
    stages = split_layers(described.inspection, topology.num_stages)
    warming = Warming(config, planned, stages, start, ensemble, runner, sampler, drafting)
    sizes = described.inspection.config
    widths = Widths(sizes.vocab_size, sizes.hidden_size)
    is_async = config.async_scheduling
    if is_async is None:
        # How many proposed tokens a step keeps must be known before the next one is launched.
        is_async = placement.device.type == "cuda" and config.speculative is None
    return Engine(scheduler, runner, sampler, warming.run, widths, is_async=is_async)


def choose_rules(config: EngineConfig, window: int | None) -> Rules:
    """How the scheduler picks, by the flags and the model's window."""
    return Rules(
        policy="priority" if config.scheduling_policy == "priority" else "fcfs",
        has_prefix_cache=config.enable_prefix_caching,
        long_prompt_tokens=config.long_prompt_tokens,
        max_long_prompts=config.max_long_prompts or 1,
        window=window,
    )


def build_speculation(
    config: EngineConfig, limits: Limits, placement: Placement, draft: DraftModel | None
) -> Speculation | None:
    """What proposes tokens, where something does."""
    asked = config.speculative
    if asked is None:
        return None
    logger.info(
        "Speculated method=%s num_speculative_tokens=%d most_a_step=%d async_scheduling=off",
        asked.method,
        asked.num_speculative_tokens,
        limits.max_num_proposed_tokens,
    )
    rules = SpeculationRules(asked.num_speculative_tokens, placement.device.type == "cpu")
    proposer = draft or NgramProposer(asked.prompt_lookup_min, asked.prompt_lookup_max)
    return Speculation(proposer, rules, limits)


def _block_shape(config: EngineConfig, described: Description, placement: Placement) -> BlockShape:
    """A block as the rank with the most layers has it."""
    part = longest_config(described.inspection, config.pipeline_parallel_size)
    token_bytes = kv_token_bytes(part, config.tensor_parallel_size, placement.kv_cache_dtype)
    return BlockShape(config.block_size, config.block_size * token_bytes, part.window)


def _choose_num_blocks(
    config: EngineConfig, model: Decoder, limits: Limits, shape: BlockShape, ensemble: Ensemble
) -> int:
    """The KV cache in blocks: as given, or a default on a CPU, or what a GPU has left."""
    if config.kv_cache_memory_bytes is not None:
        return config.kv_cache_memory_bytes // shape.num_bytes
    if model.placement.device.type == "cuda":
        return _measure_num_blocks(config, model, limits, shape, ensemble)
    num_blocks = choose_num_blocks(limits, shape)
    if config.max_model_len is not None:
        return num_blocks
    return min(num_blocks, _count_blocks_in_memory(model, limits, shape, ensemble.topology))


def _count_blocks_in_memory(
    model: Decoder, limits: Limits, shape: BlockShape, topology: Topology
) -> int:
    """The blocks for which this process has memory beside the model and a step's work."""
    activation, token_bytes = cpu_activation(model.config.sizes, topology, model.placement, limits)
    taken_bytes = Meter(model.placement.device).used_bytes() + activation
    left_bytes = int(_CPU_MEMORY_SHARE * memory_limit()) // topology.num_ranks - taken_bytes
    block_bytes = shape.num_bytes + shape.draft_bytes
    return max(0, left_bytes // (block_bytes + shape.num_tokens * token_bytes))


def _measure_num_blocks(
    config: EngineConfig, model: Decoder, limits: Limits, shape: BlockShape, ensemble: Ensemble
) -> int:
    """The blocks that each GPU has left beside the weights and the largest step's activations."""
    meter = Meter(model.placement.device)
    most_bytes = allowed_bytes(config.gpu_memory_utilization, meter.total_bytes())
    # The activations and the graphs need room while they are measured.
    most_blocks = max(1, (most_bytes - meter.used_bytes()) // (2 * shape.num_bytes))
    num_blocks = min(most_blocks, shape.num_blocks_at_once(limits.max_model_len))
    runner = _build_runners(config, model, num_blocks, limits, ensemble)
    meter.forget_peak()
    with explain_out_of_memory("activations", "lower --max-num-batched-tokens or --max-num-seqs"):
        warmup.run_largest(runner, Sampler())
    capture_graphs(runner)
    num_blocks = ensemble.least_room(count_room(config, runner))
    return num_blocks * shape.num_bytes // (shape.num_bytes + shape.draft_bytes)


def _build_runners(
    config: EngineConfig, model: Decoder, num_blocks: int, limits: Limits, ensemble: Ensemble
) -> ModelRunner:
    """A cache and a runner on each rank; rank 0's leads."""
    ensemble.begin_build(num_blocks, limits)
    runner = build_runner(config, model, num_blocks, limits, ensemble.runner_class)
    ensemble.wait()
    return runner
