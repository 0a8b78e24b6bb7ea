"""On a GPU, in bfloat16: products as the reference has them, and the same wherever a row stands."""

import pytest
import torch
from torch import Tensor

from forebay_kernels import ops, reference
from forebay_kernels.quant_matrix import quantise

pytestmark = pytest.mark.gpu

ROWS = [1, 8, 16, 33, 130]


def _random(*shape: int, seed: int = 0) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to("cuda", torch.bfloat16)


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("group", [32, 64, 128, None])
@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_weights(bits: int, group: int | None, num_rows: int) -> None:
    matrix = quantise(_random(576, 1536), bits, group, symmetric=False)
    x, residual = _random(num_rows, 1536), _random(num_rows, 576, seed=1)
    expected = reference.quant_linear(x, matrix) + residual
    out = ops.QuantLinear(matrix).add_to(residual, x)
    torch.testing.assert_close(out, expected, atol=0.5, rtol=2e-2)


@pytest.mark.parametrize("num_rows", ROWS)
def test_rounded_tokens(num_rows: int) -> None:
    matrix = quantise(_random(576, 1536), 8, None, symmetric=True)
    x = _random(num_rows, 1536)
    expected = reference.quant_linear(x, matrix)
    torch.testing.assert_close(ops.Int8Linear(matrix)(x), expected, atol=2, rtol=5e-2)


@pytest.mark.parametrize("kind", ["dense", "int4", "int8"])
def test_a_row_is_the_same_to_the_bit_whoever_shares_the_batch(kind: str) -> None:
    x, weight = _random(70, 1024), _random(576, 1024)
    product = ops.Linear(weight)
    if kind != "dense":
        product = ops.QuantLinear(quantise(weight, int(kind[-1]), 128, symmetric=False))
    with ops.batch_invariant(True):
        whole = product(x)
        for rows in (slice(0, 1), slice(3, 20), slice(69, 70)):
            assert torch.equal(product(x[rows]), whole[rows])
