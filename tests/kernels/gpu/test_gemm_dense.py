"""The dense product with one order of adding computes what torch does, whoever shares the batch."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from forebay_kernels import ops
from forebay_kernels.gpu.products.gemm_dense import linear

pytestmark = pytest.mark.interpreted


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


@pytest.mark.parametrize(
    ("num_rows", "num_outputs", "num_inputs"),
    [(1, 1, 64), (3, 72, 100), (16, 65, 1100), (67, 96, 192)],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["fp16", "fp32"])
def test_any_shape(num_rows: int, num_outputs: int, num_inputs: int, dtype: torch.dtype) -> None:
    x, weight = _random(num_rows, num_inputs).to(dtype), _random(num_outputs, num_inputs).to(dtype)
    bias = _random(num_outputs, seed=1).to(dtype)
    residual = _random(num_rows, num_outputs, seed=2).to(dtype)
    expected = (x.float() @ weight.float().T + bias + residual).to(dtype)
    size = 5e-2 if dtype == torch.float16 else 1e-4
    out = linear(x, weight, bias, residual)
    torch.testing.assert_close(out, expected, atol=size, rtol=size / 10)
    torch.testing.assert_close(
        linear(x, weight), (expected - bias - residual).to(dtype), atol=1e-1, rtol=1e-2
    )


def test_within_batch_invariant_a_row_is_the_same_to_the_bit_whoever_shares_the_batch() -> None:
    # By the place in a tile too, as numpy, which the interpreter multiplies with, goes by that.
    x, product = _random(70, 520), ops.Linear(_random(40, 520), _random(40))
    residual = _random(70, 40, seed=2)
    with ops.batch_invariant(True):
        whole, added = product(x), product.add_to(residual, x)
        for rows in (slice(0, 1), slice(0, 20), slice(64, 70)):
            assert torch.equal(product(x[rows]), whole[rows])
            assert torch.equal(product.add_to(residual[rows], x[rows]), added[rows])
