"""On Gaussian weights, each method's outputs err less than those before it, in every grid."""

from typing import Any

import pytest
import torch
from torch import Tensor

from forebay_runtime.quantizing.awq import Part
from forebay_runtime.quantizing.gptq import round_by_gptq
from forebay_runtime.quantizing.grid import Grid, RoundedMatrix, groups_in_order
from forebay_runtime.quantizing.input_statistics import InputStatistics
from forebay_runtime.quantizing.layer_rounding import output_error
from forebay_runtime.quantizing.nearest import round_to_nearest
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.rounding_method import RoundingMethod
from forebay_runtime.quantizing.scale_search import group_moments, search_scales

NUM_OUTPUTS, NUM_INPUTS, NUM_TOKENS = 56, 384, 1500
GRIDS = [
    pytest.param(Grid(4, 32, False), id="four-bits-32"),
    pytest.param(Grid(4, 64, False), id="four-bits-64"),
    pytest.param(Grid(4, 128, False), id="four-bits-128"),
    pytest.param(Grid(4, 128, True), id="four-bits-128-symmetric"),
    pytest.param(Grid(4, 0, False), id="four-bits-rows"),
    pytest.param(Grid(8, 64, True), id="eight-bits-64"),
]


def make(seed: int = 0) -> tuple[Tensor, InputStatistics]:
    """Gaussian weights, and inputs that go together and of which a few are large, as in models."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(NUM_OUTPUTS, NUM_INPUTS, generator=random) * 0.05
    mixing = torch.randn(NUM_INPUTS, NUM_INPUTS, generator=random) / NUM_INPUTS**0.5
    inputs = torch.randn(NUM_TOKENS, NUM_INPUTS, generator=random) @ (
        mixing + torch.eye(NUM_INPUTS)
    )
    sizes = torch.ones(NUM_INPUTS)
    sizes[::37] = 12
    statistics = InputStatistics(NUM_INPUTS, torch.device("cpu"))
    for batch in (inputs * sizes).split(400):
        statistics.add(batch, batch)
    return weight, statistics


def error_of(weight: Tensor, rounded: RoundedMatrix, inputs: InputStatistics) -> float:
    return output_error(weight, rounded.weight(), inputs.moments)


def clip(weight: Tensor, grid: Grid, moments: Tensor) -> RoundedMatrix:
    """Round to nearest by the scales that GPTQ begins with."""
    size = grid.size(NUM_INPUTS)
    groups = weight.unflatten(1, (-1, size))
    scales, zeros = search_scales(groups, grid, group_moments(moments, size))
    codes = grid.encode(groups, scales.unsqueeze(2), zeros.unsqueeze(2)).flatten(1)
    numbers = groups_in_order(NUM_INPUTS, size, weight.device)
    return RoundedMatrix(codes.to(torch.uint8), scales, zeros, numbers)


@pytest.mark.parametrize("grid", GRIDS)
def test_clipping_beats_extremes_and_gptq_beats_both(grid: Grid) -> None:
    weight, inputs = make()
    nearest = error_of(weight, round_to_nearest(weight, grid), inputs)
    clipped = error_of(weight, clip(weight, grid, inputs.moments), inputs)
    gptq, reordered = (
        error_of(
            weight, round_by_gptq(weight, inputs.moments, grid, 0.01, is_reordered=way), inputs
        )
        for way in (False, True)
    )
    assert clipped <= nearest
    assert gptq < 0.9 * clipped
    assert reordered < 0.9 * clipped


@pytest.mark.parametrize("grid", GRIDS)
def test_scaling_inputs_first_beats_rounding_them_as_they_are(grid: Grid) -> None:
    weight, inputs = make()
    method = RoundingMethod(Recipe("awq", grid.bits, grid.group_size, grid.is_symmetric))
    factors = method.factors([Part(weight)], inputs, lambda x: x)
    assert factors is not None
    rounded = method.round(weight * factors, inputs.moments / factors / factors.unsqueeze(1))
    scaled = output_error(weight, rounded.weight() / factors, inputs.moments)

    unscaled = error_of(weight, method.round(weight, inputs.moments), inputs)
    assert scaled < 0.97 * unscaled


@pytest.mark.parametrize("grid", GRIDS)
def test_nearest_is_within_half_a_step(grid: Grid) -> None:
    weight, _ = make()
    rounded = round_to_nearest(weight, grid)
    steps = rounded.scales[:, rounded.groups]
    # float16 rounds scales by 2 ** -11.
    slack = 0.51 + grid.most * 2**-11
    assert bool(((rounded.weight() - weight).abs() <= steps * slack).all())


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda x: x.index_fill_(1, torch.tensor([3, 90]), 0.0), id="dead-inputs"),
        pytest.param(lambda x: x[:, :1].expand_as(x), id="inputs-that-are-all-alike"),
        pytest.param(lambda x: x[:5].repeat(300, 1), id="fewer-tokens-than-inputs"),
        pytest.param(lambda x: x * 0, id="nothing"),
    ],
)
def test_gptq_takes_any_inputs(spoil: Any) -> None:
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(NUM_OUTPUTS, NUM_INPUTS, generator=random)
    inputs = InputStatistics(NUM_INPUTS, torch.device("cpu"))
    tokens = spoil(torch.randn(NUM_TOKENS, NUM_INPUTS, generator=random))
    inputs.add(tokens, tokens)
    grid = Grid(4, 64, False)
    rounded = round_by_gptq(weight, inputs.moments, grid, 0.01, is_reordered=False)

    assert bool(rounded.weight().isfinite().all())
    nearest = error_of(weight, round_to_nearest(weight, grid), inputs)
    assert error_of(weight, rounded, inputs) <= nearest


def test_weights_that_are_all_zero_stay_zero() -> None:
    weight = torch.zeros(8, 64)
    for grid in (Grid(4, 32, False), Grid(8, 0, True)):
        assert not bool(round_to_nearest(weight, grid).weight().any())


def test_weights_are_aimed_at_what_the_original_inputs_gave() -> None:
    random = torch.Generator().manual_seed(2)
    weight = torch.randn(NUM_OUTPUTS, 64, generator=random)
    original = torch.randn(NUM_TOKENS, 64, generator=random)
    drifted = original + 0.1 * original @ torch.randn(64, 64, generator=random)
    inputs = InputStatistics(64, torch.device("cpu"))
    for was, now in zip(original.split(400), drifted.split(400), strict=True):
        inputs.add(now, was)

    wanted = original @ weight.T
    before = float((drifted @ weight.T - wanted).norm())
    assert float((drifted @ inputs.aimed(weight).T - wanted).norm()) < 0.3 * before


def test_weights_whose_inputs_are_the_original_ones_stay() -> None:
    weight, inputs = make()
    torch.testing.assert_close(inputs.aimed(weight), weight, rtol=1e-3, atol=1e-4)
