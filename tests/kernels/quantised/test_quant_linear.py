"""A product with a quantised matrix is the product with what it stands for."""

import pytest
import torch
from torch import Tensor

from forebay_kernels import ops, reference
from forebay_kernels.portable import quant_linear
from forebay_kernels.quant_matrix import QuantMatrix, quantise


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=[4, 8], ids=["int4", "int8"])
def matrix(request: pytest.FixtureRequest) -> QuantMatrix:
    return quantise(_random(37, 192), request.param, 64, symmetric=False)


@pytest.mark.parametrize("num_rows", [1, 2, 17, 67])
@pytest.mark.parametrize("num_tile_weights", [1, 10 * 192, 1 << 22], ids=["row", "ten", "all"])
def test_the_product_is_that_of_the_reference(
    matrix: QuantMatrix, num_rows: int, num_tile_weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quant_linear, "_TILE_WEIGHTS", num_tile_weights)
    x, bias, residual = _random(num_rows, 192), _random(37, seed=1), _random(num_rows, 37, seed=2)
    linear = ops.QuantLinear(matrix, bias)
    expected = reference.quant_linear(x, matrix, bias)
    near = {"atol": 1e-4, "rtol": 1e-5}
    torch.testing.assert_close(linear(x), expected, **near)
    torch.testing.assert_close(linear.add_to(residual, x), expected + residual, **near)
    torch.testing.assert_close(ops.QuantLinear(matrix)(x), expected - bias, **near)


def test_the_residual_and_the_input_stay_as_they_are(matrix: QuantMatrix) -> None:
    x, residual = _random(3, 192), _random(3, 37)
    before = x.clone(), residual.clone()
    ops.QuantLinear(matrix).add_to(residual, x)
    assert torch.equal(x, before[0]) and torch.equal(residual, before[1])


def test_a_row_is_the_same_to_the_bit_whoever_shares_the_batch(matrix: QuantMatrix) -> None:
    x, linear = _random(33, 192), ops.QuantLinear(matrix)
    with ops.batch_invariant(True):
        alone = torch.cat([linear(row.unsqueeze(0)) for row in x])
        assert torch.equal(linear(x), alone)


def test_its_bytes_are_the_matrix_and_the_bias(matrix: QuantMatrix) -> None:
    assert ops.QuantLinear(matrix, torch.zeros(37)).num_bytes == matrix.num_bytes + 37 * 4
