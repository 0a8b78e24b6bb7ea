"""What is planned for stages, of memory and time, is what their ranks hold and take."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forebay_budget.terms import Terms
from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.models.decoder import Decoder, DecoderConfig, DecoderLayer
from forebay_runtime.models.link import Alone
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.shard import Shard
from forebay_runtime.models.topology import Topology
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.scheduling.batch import Batch, Limits
from forebay_runtime.start import warmup
from forebay_runtime.start.memory import plan_terms
from forebay_runtime.start.rank_assembly import choose_stage
from forebay_runtime.step_result import StepResult
from parallel_play import SIZES
from smollm2 import smollm2_path
from tiny_model import save_tiny

CPU = Placement(torch.float32, torch.device("cpu"), kv_cache_dtype="float32")
LIMITS = Limits(max_num_seqs=2, max_num_batched_tokens=16, max_model_len=32)
NUM_BLOCKS, BLOCK_SIZE = 4, 16


class Rank(Alone):
    """A link that says which part is its own, and reaches nobody."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard


def load_ranks(
    described: Description, topology: Topology, placement: Placement = CPU
) -> Iterator[Decoder]:
    config = DecoderConfig(described.blueprint, LIMITS.max_model_len)
    for rank in range(topology.num_ranks):
        checkpoint = open_checkpoint(described.path, described.blueprint)
        link, stage = Rank(topology.shard(rank)), choose_stage(described, topology, rank)
        yield Decoder(config, checkpoint, placement, link, stage)


def plan(described: Description, topology: Topology, placement: Placement, cache: int) -> Terms:
    return plan_terms(described.inspection, topology, placement, LIMITS, cache)


WIDE = {**SIZES, "intermediate_size": 256, "vocab_size": 2560, "num_hidden_layers": 7}
"""An end is as large as two layers or more, and needs no padding."""


@pytest.mark.parametrize("bits", [None, 8, 4], ids=["plain", "int8", "int4"])
@pytest.mark.parametrize(("tp", "pp"), [(1, 2), (1, 3), (1, 5), (2, 2), (2, 3), (2, 4)])
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_a_plan_is_the_most_that_any_rank_holds_of_each_term(
    tmp_path: Path, is_tied: bool, tp: int, pp: int, bits: int | None
) -> None:
    save_tiny(tmp_path, tie_word_embeddings=is_tied, **WIDE)
    described, topology = describe_model(tmp_path), Topology(tp, pp)
    placement = replace(CPU, rounded_bits=bits)
    ranks = list(load_ranks(described, topology, placement))
    caches = [rank.new_cache(NUM_BLOCKS, BLOCK_SIZE).num_bytes for rank in ranks]
    planned = plan(described, topology, placement, max(caches))
    assert planned.weights_bytes == max(rank.num_bytes for rank in ranks)
    held = [rank.num_bytes + cache for rank, cache in zip(ranks, caches, strict=True)]
    assert planned.weights_bytes + planned.kv_cache_bytes >= max(held)


@pytest.mark.component
def test_the_real_models_plan_is_near_what_its_three_stages_read() -> None:
    described, topology = describe_model(smollm2_path()), Topology(1, 3)
    most_bytes = max(rank.num_bytes for rank in load_ranks(described, topology))
    planned = plan(described, topology, CPU, 0)
    assert most_bytes <= planned.weights_bytes <= 1.05 * most_bytes


class StageByStage:
    """A runner of all stages in this process, each after the other, as ranks take turns."""

    def __init__(self, runners: list[ModelRunner]) -> None:
        self._runners = runners

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runners[0], name)

    def run(self, batch: Batch, num_layers: int | None = None) -> StepResult:
        return [runner.run(batch, num_layers) for runner in self._runners][-1]


@pytest.mark.parametrize(
    ("family", "num_layers", "num_stages"),
    [
        pytest.param("llama", 7, 1, id="one-stage"),
        pytest.param("llama", 7, 3, id="one-kind"),
        pytest.param("gemma3", 7, 1, id="two-kinds-in-one-stage"),
        pytest.param("gemma3", 8, 2, id="stages-that-differ-in-kinds"),
    ],
)
def test_the_slowest_step_is_of_all_layers_of_all_stages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    num_layers: int,
    num_stages: int,
) -> None:
    """By a clock that each layer advances by a second."""
    save_tiny(tmp_path, family, num_hidden_layers=num_layers)
    described, topology = describe_model(tmp_path), Topology(1, num_stages)
    decoders = list(load_ranks(described, topology))
    seconds = 0.0
    run_layer = DecoderLayer.__call__

    def tick(layer: DecoderLayer, *inputs: Any) -> None:
        nonlocal seconds
        seconds += 1
        run_layer(layer, *inputs)

    monkeypatch.setattr(DecoderLayer, "__call__", tick)
    monkeypatch.setattr(warmup, "read_clock", lambda: seconds)
    runner = StageByStage(
        [ModelRunner(rank, rank.new_cache(NUM_BLOCKS, BLOCK_SIZE), LIMITS) for rank in decoders]
    )
    stages = [range(rank.stage.start, rank.stage.stop) for rank in decoders]
    assert warmup.end_warm_up(runner, stages) == num_layers  # type: ignore[arg-type]
    assert seconds < num_layers
