"""The kernel for rounded tokens by weights of eight bits computes what the portable form does."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from forebay_kernels.gpu.products import gemm_w8a8
from forebay_kernels.gpu.products.round_tokens import round_tokens
from forebay_kernels.portable import int8_linear as portable
from forebay_kernels.quant_matrix import quantise

pytestmark = pytest.mark.interpreted

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["fp16", "fp32"])


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@DTYPES
@pytest.mark.parametrize("num_inputs", [48, 1040])
def test_tokens_are_rounded_as_by_torch(num_inputs: int, dtype: torch.dtype) -> None:
    x = _random(5, num_inputs).to(dtype)
    x[1] = 0
    x[2, 0] = 1000
    for join in (None, lambda largest: largest * 2):
        rounded, scales = round_tokens(x, join)
        expected, expected_scales = portable.round_tokens(x, join)
        assert torch.equal(scales, expected_scales)
        assert torch.equal(rounded, expected)


@DTYPES
@pytest.mark.parametrize("num_rows", [1, 16, 17, 67, 130])
def test_the_product_is_that_of_the_portable_form(num_rows: int, dtype: torch.dtype) -> None:
    matrix = quantise(_random(72, 208).to(dtype), 8, None, symmetric=True)
    x, bias = _random(num_rows, 208).to(dtype), _random(72, seed=1).to(dtype)
    residual = _random(num_rows, 72, seed=2).to(dtype)
    expected = portable.int8_linear(x, matrix, bias)
    tolerance = {"atol": 2e-2, "rtol": 2e-3} if dtype == torch.float16 else {}
    torch.testing.assert_close(gemm_w8a8.int8_linear(x, matrix, bias), expected, **tolerance)
    sums = gemm_w8a8.int8_linear(x, matrix, bias, None, residual)
    torch.testing.assert_close(sums, expected + residual, **tolerance)
    alone = gemm_w8a8.int8_linear(x[:1], matrix, bias)
    assert torch.equal(alone, gemm_w8a8.int8_linear(x, matrix, bias)[:1])


def test_outputs_may_be_few() -> None:
    matrix = quantise(_random(3, 64), 8, None, symmetric=True)
    x = _random(2, 64)
    torch.testing.assert_close(
        gemm_w8a8.int8_linear(x, matrix), portable.int8_linear(x, matrix), atol=1e-5, rtol=1e-5
    )
