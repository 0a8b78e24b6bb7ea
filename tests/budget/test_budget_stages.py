"""How layers go over stages, and what the largest stage takes."""

import pytest

from forebay_budget.stages import count_stage_layers, largest_stage, split_layers
from forebay_budget.terms import kv_token_bytes, weights_bytes
from observed_builder import SMOLLM2


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
