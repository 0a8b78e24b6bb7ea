"""What families add to a model's memory: experts, and windows that bound what a request keeps."""

from dataclasses import replace

import pytest

from forebay_budget.demand import Demand
from forebay_budget.inspection import Inspection, ModelConfig, WeightGroup
from forebay_budget.report import to_text
from forebay_budget.sizing import Fit, size
from forebay_budget.terms import (
    GIB,
    activation_bytes,
    admissible_tensor_parallel_sizes,
    held_tokens,
    weights_bytes,
)

MISTRAL = ModelConfig(
    "MistralForCausalLM", 32, 4096, 32, 8, 128, 14336, 32000, 32768, False, "bfloat16"
)
MIXTRAL = replace(
    MISTRAL,
    architecture="MixtralForCausalLM",
    num_experts=8,
    num_experts_per_token=2,
    expert_intermediate_size=14336,
)
ATTENTION = (2 * 32 + 2 * 8) * 128 * 4096
EXPERTS = 8 * 3 * 14336 * 4096


def build(config: ModelConfig, layer_elements: int) -> Inspection:
    """A checkpoint with so many elements in the matrices of a layer."""
    counts = {
        "sharded": config.num_layers * layer_elements,
        "replicated": (2 * config.num_layers + 1) * config.hidden_size,
        "embedding": 2 * config.vocab_size * config.hidden_size,
    }
    weights = [WeightGroup(kind, "BF16", n, 2 * n) for kind, n in counts.items()]  # type: ignore[arg-type]
    return Inspection(config, tuple(weights), "safetensors", "0" * 40)


def fit(inspection: Inspection, demand: Demand) -> Fit:
    answer = size(inspection, demand)
    assert isinstance(answer, Fit), answer
    return answer


def test_all_experts_are_held_and_divided_over_the_ranks() -> None:
    mixtral = build(MIXTRAL, ATTENTION + EXPERTS)
    assert weights_bytes(mixtral, 2, "bfloat16") == 2 * (
        32 * (ATTENTION + EXPERTS) // 2 + 65 * 4096 + 32000 * 4096
    )
    answer = fit(mixtral, Demand("GPU", 80 * GIB, max_model_len=8192, max_num_seqs=4))
    assert answer.tensor_parallel_size == 2


def test_a_mixtures_intermediates_are_those_of_the_expert_that_all_tokens_choose() -> None:
    width = 3 * 14336 + (32 + 2 * 8) * 128 + 3 * 4096
    dense = activation_bytes(MISTRAL, 1, "bfloat16", 2048, 1)
    assert dense == 2048 * width * 2
    assert activation_bytes(MIXTRAL, 1, "bfloat16", 2048, 1) == dense + 2048 * 3 * 4096 * 2


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        pytest.param({}, [1, 2, 4, 8], id="all as divisible"),
        pytest.param({"expert_intermediate_size": 1406}, [1, 2], id="odd experts"),
        pytest.param({"shared_intermediate_size": 5628}, [1, 2, 4], id="an odd shared expert"),
    ],
)
def test_every_size_of_an_mlp_must_divide(changes: dict[str, int], sizes: list[int]) -> None:
    assert admissible_tensor_parallel_sizes(replace(MIXTRAL, **changes), "None") == sizes


@pytest.mark.parametrize(
    ("window", "num_tokens", "num_held"),
    [
        pytest.param(None, 10_000, 10_000, id="no window"),
        pytest.param(4096, 100, 112, id="shorter than the window"),
        pytest.param(4096, 32768, 4096 + 512 + 16, id="window, step, and a block begun"),
        pytest.param(1, 32768, 512 + 16, id="a window of one"),
        pytest.param(4096, 4200, 4208, id="longer than the window, not than window and step"),
    ],
)
def test_a_request_keeps_its_window_and_one_step(
    window: int | None, num_tokens: int, num_held: int
) -> None:
    assert held_tokens(replace(MISTRAL, window=window), num_tokens, 512) == num_held


def test_under_a_window_long_requests_take_no_more_memory_than_the_window() -> None:
    elements = ATTENTION + 3 * 14336 * 4096
    demand = Demand("GPU", 18 * GIB, max_gpus_per_node=1, max_num_seqs=1, mean_tokens=1024)
    whole = fit(build(MISTRAL, elements), demand)
    windowed = fit(build(replace(MISTRAL, window=4096), elements), demand)
    assert whole.max_model_len < windowed.max_model_len == 32_768
    assert windowed.kv_cache_tokens < 32_768
    assert "2 requests of 32,768" in windowed.explanation


def test_the_report_says_what_makes_a_model_unlike_others() -> None:
    mixtral = build(replace(MIXTRAL, window=4096), ATTENTION + EXPERTS)
    demand = Demand("GPU", 80 * GIB)
    text = to_text(mixtral, demand, fit(mixtral, demand))
    assert (
        "safetensors); 2 of 8 experts a token; a window of 4096 tokens, which bounds what a "
        "request keeps\n" in text
    )
