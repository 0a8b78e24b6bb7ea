"""The kernel for quantised weights computes what the reference does, for any shape and format."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from forebay_kernels import ops, reference
from forebay_kernels.gpu.products import gemm_quant
from forebay_kernels.portable.batch_invariant import batch_invariant
from forebay_kernels.quant_matrix import QuantMatrix, build_matrix, quantise

pytestmark = pytest.mark.interpreted


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _check(x: Tensor, matrix: QuantMatrix, bias: Tensor | None, residual: Tensor | None) -> None:
    expected = reference.quant_linear(x, matrix, bias)
    if residual is not None:
        expected = expected + residual
    out = gemm_quant.quant_linear(x, matrix, bias, residual)
    tolerance = 1e-4 if x.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out, expected, atol=tolerance * 8, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["fp16", "fp32"])
@pytest.mark.parametrize("group", [32, 64, 128, None])
@pytest.mark.parametrize("bits", [4, 8])
def test_each_format(bits: int, group: int | None, dtype: torch.dtype) -> None:
    num_inputs = 384 if group else 352
    matrix = quantise(_random(72, num_inputs).to(dtype), bits, group, symmetric=bits == 8)
    _check(_random(3, num_inputs).to(dtype), matrix, None, None)


@pytest.mark.parametrize("num_rows", [1, 8, 9, 16, 17, 64, 67])
def test_each_number_of_rows(num_rows: int) -> None:
    matrix = quantise(_random(80, 256).half(), 4, 64, symmetric=False)
    bias, residual = _random(80, seed=1).half(), _random(num_rows, 80, seed=2).half()
    _check(_random(num_rows, 256).half(), matrix, bias, residual)


@pytest.mark.parametrize("num_outputs", [1, 63, 65, 144])
def test_each_number_of_outputs(num_outputs: int) -> None:
    matrix = quantise(_random(num_outputs, 96).half(), 8, 32, symmetric=False)
    _check(_random(5, 96).half(), matrix, None, _random(5, num_outputs, seed=2).half())


@pytest.mark.parametrize(
    ("bits", "group", "num_inputs"),
    [
        pytest.param(4, 128, 2048 + 128, id="an-odd-group"),
        pytest.param(4, 32, 1024 + 32, id="small-groups"),
        pytest.param(8, None, 1024 + 16, id="a-word-over"),
    ],
)
def test_inputs_split_over_programs(bits: int, group: int | None, num_inputs: int) -> None:
    matrix = quantise(_random(40, num_inputs).half(), bits, group, symmetric=True)
    bias, residual = _random(40, seed=1).half(), _random(2, 40, seed=2).half()
    _check(_random(2, num_inputs).half() / 8, matrix, bias, residual)


def test_inputs_in_an_order_of_their_own_and_a_rank_s_part_of_them() -> None:
    base = quantise(_random(24, 128).half(), 4, 32, symmetric=False)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(1))
    matrix = build_matrix(base.codes(), base.scales, base.zeros, 4, 32, order)
    x = _random(3, 128).half()
    _check(x, matrix, None, None)
    _check(x[:, :50], matrix.split_columns(0, 50), None, None)


def test_rows_are_the_same_to_the_bit_whoever_shares_the_batch() -> None:
    matrix = quantise(_random(40, 1024).half(), 4, 128, symmetric=False)
    x = _random(70, 1024).half()
    # By the place in a tile too, as numpy, which the interpreter multiplies with, goes by that.
    with batch_invariant(True):
        whole = gemm_quant.quant_linear(x, matrix)
        for rows in (slice(0, 1), slice(0, 20), slice(64, 70)):
            assert torch.equal(gemm_quant.quant_linear(x[rows], matrix), whole[rows])


def test_bfloat16_is_refused_by_the_interpreter() -> None:
    matrix = quantise(_random(8, 64).bfloat16(), 4, 32, symmetric=True)
    with pytest.raises(ValueError, match="float32 or float16"):
        ops.QuantLinear(matrix)(_random(1, 64).bfloat16())
