"""How layers go over stages, and what the largest stage takes."""

from dataclasses import replace

import pytest

from forebay_budget.sizing import Demand, Fit, Misfit, size
from forebay_budget.stages import count_stage_layers, largest_stage, split_layers
from forebay_budget.terms import GIB, kv_token_bytes, weights_bytes
from observed_builder import LLAMA_13B, SMOLLM2


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "layer", "end", "counts"),
    [
        pytest.param(7, 1, 10, 5, (7,), id="one stage has all"),
        pytest.param(8, 2, 10, 5, (4, 4), id="two alike"),
        pytest.param(7, 2, 10, 5, (3, 4), id="what is left over goes to the later"),
        pytest.param(10, 3, 10, 20, (2, 5, 3), id="ends count as layers"),
        pytest.param(3, 3, 10, 500, (1, 1, 1), id="none is empty"),
    ],
)
def test_layers_are_shared_out_by_bytes(
    num_layers: int, num_stages: int, layer: int, end: int, counts: tuple[int, ...]
) -> None:
    found = count_stage_layers(num_layers, num_stages, layer, end)
    assert found == counts and sum(found) == num_layers


@pytest.mark.parametrize("num_stages", [1, 2, 3, 7, 30])
def test_stages_are_all_layers_in_order(num_stages: int) -> None:
    stages = split_layers(SMOLLM2, num_stages)
    assert [layer for stage in stages for layer in stage] == list(range(30))
    assert all(stages)


def test_the_largest_stage_has_its_layers_and_one_end() -> None:
    half = largest_stage(SMOLLM2, 2)
    assert half.config.num_layers == 15
    # Norms of all layers and the last one are halved; the tied embedding is on both sides.
    assert weights_bytes(half, 1, "bfloat16") == 106_168_320 + 35_136 + 2 * 49_152 * 576
    assert 2 * kv_token_bytes(half.config, 1, "bfloat16") == kv_token_bytes(
        SMOLLM2.config, 1, "bfloat16"
    )


@pytest.mark.parametrize("asked", [None, 3], ids=["found", "asked for"])
def test_a_model_that_three_gpus_do_not_divide_goes_over_them_by_layers(asked: int | None) -> None:
    """Forty heads: one GPU, two or four."""
    demand = Demand("GPU", 12 * GIB, max_gpus_per_node=3, pipeline_parallel_size=asked)
    assert isinstance(size(LLAMA_13B, replace(demand, pipeline_parallel_size=1)), Misfit)
    fit = size(LLAMA_13B, demand)
    assert isinstance(fit, Fit)
    assert (fit.tensor_parallel_size, fit.pipeline_parallel_size, fit.num_gpus) == (1, 3, 3)
    assert fit.to_plan()["pipelineParallelSize"] == 3
    assert fit.budget_bytes >= 3 * fit.terms.total_bytes


def test_more_stages_than_layers_are_refused() -> None:
    demand = Demand("GPU", 80 * GIB, max_gpus_per_node=64, pipeline_parallel_size=31)
    misfit = size(SMOLLM2, demand)
    assert isinstance(misfit, Misfit)
    assert "the model has 30 layers; set at most 30" in misfit.message
