"""A product of bytes is exact, whoever shares the batch and however ranks share the inputs."""

from dataclasses import replace

import pytest
import torch

from forebay_kernels import ops
from forebay_kernels.quant_formats import from_signed
from forebay_kernels.quant_matrix import quantise

LARGE = 1_088
"""So many products of bytes pass what float32 counts exactly."""


def make(num_outputs: int, num_inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(num_inputs)
    weight = torch.randint(-127, 128, (num_outputs, num_inputs), generator=chance)
    return weight.to(torch.int8), torch.rand(num_outputs, 1, generator=chance) / 64


def expected(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """In whole numbers, then in float64."""
    step = x.abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
    codes = (x / step).round().long()
    return (codes @ weight.long().T).double() * step * scale.double().T


@pytest.mark.parametrize(
    ("num_rows", "num_outputs", "num_inputs"),
    [(1, 7, 96), (3, 160, 48), (33, 33, 16), (2, 5, LARGE)],
)
def test_it_is_the_product_of_rounded_tokens(
    num_rows: int, num_outputs: int, num_inputs: int
) -> None:
    weight, scale = make(num_outputs, num_inputs)
    x = torch.randn(num_rows, num_inputs, generator=torch.Generator().manual_seed(1))
    x[-1] = 0
    bias = torch.randn(num_outputs)
    linear = ops.Int8Linear(from_signed(weight, scale, None), bias)

    wanted = expected(x, weight, scale) + bias
    torch.testing.assert_close(linear(x).double(), wanted, atol=1e-5, rtol=1e-6)
    residual = torch.randn(num_rows, num_outputs)
    torch.testing.assert_close(linear.add_to(residual, x), residual + linear(x))


def test_a_token_alone_gets_the_same_bits_as_in_company() -> None:
    linear = ops.Int8Linear(from_signed(*make(64, 96), None))
    x = torch.randn(19, 96)

    assert torch.equal(torch.cat([linear(row[None]) for row in x]), linear(x))


def test_ranks_that_join_their_largest_numbers_add_up_to_the_whole() -> None:
    weight, scale = make(48, LARGE)
    matrix, x = from_signed(weight, scale, None), torch.randn(5, LARGE)
    largest = x.abs().amax(-1, keepdim=True)
    half = LARGE // 2
    parts = [
        ops.Int8Linear(matrix.split_columns(start, start + half), None, lambda own: largest)(
            x[:, start : start + half]
        )
        for start in (0, half)
    ]
    torch.testing.assert_close(parts[0] + parts[1], ops.Int8Linear(matrix)(x))


def test_other_matrices_are_refused() -> None:
    rows = from_signed(*make(8, 64), None)
    for matrix in (
        quantise(torch.randn(8, 64), 8, 32, symmetric=True),
        quantise(torch.randn(8, 64), 4, None, symmetric=True),
        replace(rows, zeros=torch.zeros(1, 8, dtype=torch.uint8)),
    ):
        with pytest.raises(ValueError, match="one scale a row, and no zero points"):
            ops.Int8Linear(matrix)
