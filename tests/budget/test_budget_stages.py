"""How layers go over stages, and what the largest stages take."""

from dataclasses import replace

import pytest

from forebay_budget.inspection import Inspection
from forebay_budget.sizing import Demand, Fit, Misfit, size
from forebay_budget.stages import (
    count_stage_layers,
    list_stages,
    longest_config,
    split_layers,
    stage_weights_bytes,
)
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


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("model", [SMOLLM2, LLAMA_13B], ids=["tied", "untied"])
def test_the_planned_weights_are_those_of_the_heaviest_stage(
    model: Inspection, num_stages: int, tp: int
) -> None:
    # Two KV heads, as of three some are copied.
    config = replace(model.config, num_kv_heads=2)
    model = replace(model, config=config)
    end = config.vocab_size * config.hidden_size
    layer = model.weights[1].num_elements // config.num_layers
    held = []
    for index, layers in enumerate(split_layers(model, num_stages)):
        ends = (
            1
            if num_stages == 1 and config.tie_word_embeddings
            else [0, num_stages - 1].count(index)
        )
        vectors = (2 * len(layers) + 1) * config.hidden_size
        held.append(2 * ((len(layers) * layer + ends * end) // tp + vectors))
    assert stage_weights_bytes(model, num_stages, tp, "bfloat16", "None") == max(held)


def test_the_cache_is_that_of_the_stage_with_the_most_layers() -> None:
    assert [len(layers) for layers in split_layers(SMOLLM2, 3)] == [7, 15, 8]
    longest = longest_config(SMOLLM2, 3)
    assert 2 * kv_token_bytes(longest, 1, "bfloat16") == kv_token_bytes(
        SMOLLM2.config, 1, "bfloat16"
    )
    # The last has eight layers and a copy of the embedding, which is more than seven layers.
    planned = stage_weights_bytes(SMOLLM2, 3, 1, "bfloat16", "None")
    assert planned == 2 * (8 * 106_168_320 // 30 + 17 * 576 + 49_152 * 576)


def test_which_stage_is_the_heaviest_goes_by_what_is_served() -> None:
    """Rounding makes layers small, but no embedding."""
    by_form = {
        form: [weights_bytes(stage, 1, "bfloat16", form) for stage in list_stages(LLAMA_13B, 3)]
        for form in ("None", "INT4")
    }
    assert by_form["None"].index(max(by_form["None"])) == 1
    assert by_form["INT4"].index(max(by_form["INT4"])) != 1
    for form, sizes in by_form.items():
        assert stage_weights_bytes(LLAMA_13B, 3, 1, "bfloat16", form) == max(sizes)


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


def test_the_least_budget_may_be_that_of_an_odd_number_of_stages() -> None:
    """Two GPUs of 12 GiB are too few, and four by tensor parallelism take more than three."""
    demand = Demand("GPU", 12 * GIB, budget_bytes=GIB, max_gpus_per_node=4)
    misfit = size(LLAMA_13B, demand)
    assert isinstance(misfit, Misfit)
    ((field, budget),) = misfit.nearest[0].changes
    assert field == "budget_bytes"
    fit = size(LLAMA_13B, replace(demand, budget_bytes=budget))
    assert isinstance(fit, Fit) and fit.pipeline_parallel_size == 3
    assert isinstance(size(LLAMA_13B, replace(demand, budget_bytes=budget - GIB)), Misfit)


def test_more_stages_than_layers_are_refused() -> None:
    demand = Demand("GPU", 80 * GIB, max_gpus_per_node=64, pipeline_parallel_size=31)
    misfit = size(SMOLLM2, demand)
    assert isinstance(misfit, Misfit)
    assert "the model has 30 layers; set at most 30" in misfit.message
