"""What a packed matrix takes, what it stands for, and how products end."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import (
    CodeScales,
    pack_codes,
    pack_dense,
    pack_quant,
)
from forebay_kernels.cpu.product import CpuLinear, multiply
from forebay_kernels.quant_matrix import quantise
from product_oracle import Coding, error, random_codes


@pytest.mark.parametrize("group_size", [32, 64, 128, None])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "zeros"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_matrix_packed_for_other_devices_stands_for_the_same(
    bits: int, symmetric: bool, group_size: int | None
) -> None:
    matrix = quantise(torch.randn(50, 256).half(), bits, group_size, symmetric)
    packed = pack_quant(matrix)
    torch.testing.assert_close(packed.dequantised(), matrix.dequantised(torch.float32))


@pytest.mark.parametrize("input_form", InputForm, ids=lambda form: form.name)
@pytest.mark.parametrize("num_rows", [1, 9])
def test_inputs_stored_in_another_order_are_gathered(num_rows: int, input_form: InputForm) -> None:
    order = torch.cat([torch.randperm(96), torch.randint(0, 96, (32,))])
    coded = random_codes(Coding(4, 32, "middle"), 40, 128)
    ordered = torch.zeros(40, 96, dtype=torch.float64).index_add_(1, order, coded.weight)
    packed = replace(coded.packed, num_inputs=96, input_order=order.to(torch.int32))
    torch.testing.assert_close(packed.dequantised(), ordered.float())
    x = torch.randn(num_rows, 96)
    plain = CpuLinear(coded.packed, input_form=input_form)(x[:, order])
    assert torch.equal(CpuLinear(packed, input_form=input_form)(x), plain)


@pytest.mark.parametrize("num_outputs", [16, 33])
@pytest.mark.parametrize("input_form", InputForm, ids=lambda form: form.name)
def test_a_product_is_added_to_what_was_there(num_outputs: int, input_form: InputForm) -> None:
    packed = random_codes(Coding(4, 32, "middle"), num_outputs, 96).packed
    x, bias, residual = torch.randn(5, 96), torch.randn(num_outputs), torch.randn(5, num_outputs)
    linear = CpuLinear(packed, bias, input_form)
    assert torch.equal(linear.add_to(residual, x), residual + linear(x))
    assert torch.equal(linear(x), CpuLinear(packed, input_form=input_form)(x) + bias)


def test_rows_may_lie_in_wider_ones() -> None:
    packed = pack_dense(torch.randn(33, 64))
    x, out = torch.randn(7, 100), torch.zeros(7, 50)
    multiply(packed, x[:, 10:74], out[:, 5:38])
    assert torch.equal(out[:, 5:38], CpuLinear(packed)(x[:, 10:74].contiguous()))
    assert not out[:, :5].any() and not out[:, 38:].any()


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1.0, 1e7])
def test_scales_of_any_size_keep_their_bits(size: float) -> None:
    codes = torch.randint(0, 16, (20, 64), dtype=torch.uint8)
    scales = (torch.rand(2, 20) + 0.5) * size
    packed = pack_codes(codes, CodeScales(4, 32, scales))
    wanted = (codes.float() - 8) * scales.T.repeat_interleave(32, 1)
    torch.testing.assert_close(packed.dequantised(), wanted, rtol=2**-11, atol=0)


def test_zeros_give_zeros() -> None:
    packed = random_codes(Coding(4, 32, "middle"), 20, 64).packed
    assert not CpuLinear(packed)(torch.zeros(3, 64)).any()


def test_numbers_too_small_for_a_scale_count_as_zeros() -> None:
    coded = random_codes(Coding(4, 32, "middle"), 20, 64)
    out = CpuLinear(coded.packed)(torch.full((1, 64), 1e-38))
    assert error(out, torch.zeros(1, 20), coded.weight, torch.ones(1, 64)) < 1e-30


def _codes(bits: int = 4, group_size: int | None = 32, num_groups: int = 2) -> CodeScales:
    return CodeScales(bits, group_size, torch.ones(num_groups, 20))


@pytest.mark.parametrize(
    ("meaning", "message"),
    [
        pytest.param(_codes(bits=7), "7 bits a weight cannot be packed", id="bits"),
        pytest.param(_codes(group_size=48), "groups of 48 inputs", id="group"),
        pytest.param(_codes(num_groups=3), r"scales of shape \(3, 20\)", id="scales"),
        pytest.param(
            CodeScales(4, 32, torch.full((2, 20), torch.inf)), "not a finite number", id="infinite"
        ),
        pytest.param(
            CodeScales(4, 32, torch.ones(2, 20), torch.ones(2, 20), torch.ones(2, 20)),
            "zeros or mins, not both",
            id="both",
        ),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(meaning: CodeScales, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_codes(torch.zeros(20, 64, dtype=torch.uint8), meaning)


def test_other_dtypes_and_shapes_are_refused() -> None:
    packed = pack_dense(torch.randn(20, 64))
    with pytest.raises(ValueError, match="float16 cannot be packed"):
        pack_dense(torch.randn(4, 4).half())
    with pytest.raises(ValueError, match="x of shape"):
        multiply(packed, torch.randn(2, 65), torch.empty(2, 20))
    with pytest.raises(ValueError, match="out of shape"):
        multiply(packed, torch.randn(2, 64), torch.empty(2, 20).double())
    with pytest.raises(ValueError, match="a matrix of 20 lacks"):
        packed.rows(torch.tensor([20]))
