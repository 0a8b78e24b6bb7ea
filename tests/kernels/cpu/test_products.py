"""The CPU's products equal float64 over the same rounded inputs, for every format and processor."""

from __future__ import annotations

import pytest
import torch

from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import pack_dense
from forebay_kernels.cpu.product import CpuLinear
from product_oracle import (
    Coding,
    error,
    instructions,
    random_codes,
    rounded_inputs,
    usable_isas,
)

SHAPES = [(40, 96), (7, 70), (33, 320), (16, 33), (100, 576)]
NUM_ROWS = [1, 2, 3, 5, 8, 13, 67]
CODINGS = [
    Coding(bits, group_size, zero_kind)
    for bits in (2, 3, 4, 5, 6, 8)
    for group_size in (16, 32, 64, 128, None)
    for zero_kind in ("middle", "integers", "mins")
]
SINGLE_ERROR = 1e-6
"""Of sums of a few hundred numbers of float32, against the sum of their sizes."""


@pytest.fixture(params=usable_isas())
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _shape(index: int) -> tuple[int, int, int]:
    num_outputs, num_inputs = SHAPES[index % len(SHAPES)]
    return num_outputs, num_inputs, NUM_ROWS[index % len(NUM_ROWS)]


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_codes_by_rounded_inputs_are_exact_but_for_float_sums(isa: str, coding: Coding) -> None:
    for turn in range(3):
        num_outputs, num_inputs, num_rows = _shape(CODINGS.index(coding) + 2 * turn)
        coded = random_codes(coding, num_outputs, num_inputs)
        x, bias = torch.randn(num_rows, num_inputs), torch.randn(num_outputs)
        rounded = rounded_inputs(x, coded.unit_inputs)
        with instructions(isa):
            out = CpuLinear(coded.packed, bias)(x)
        wanted = rounded @ coded.weight.T + bias
        assert error(out, wanted, coded.weight, x) < SINGLE_ERROR


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_codes_by_exact_inputs_are_a_float32_product(isa: str, coding: Coding) -> None:
    num_outputs, num_inputs, num_rows = _shape(CODINGS.index(coding))
    coded = random_codes(coding, num_outputs, num_inputs)
    x = torch.randn(num_rows, num_inputs)
    with instructions(isa):
        out = CpuLinear(coded.packed, input_form=InputForm.EXACT)(x)
    assert error(out, x.double() @ coded.weight.T, coded.weight, x) < SINGLE_ERROR


@pytest.mark.parametrize("num_rows", NUM_ROWS)
@pytest.mark.parametrize(("num_outputs", "num_inputs"), SHAPES)
def test_float32_weights_give_a_float32_product(
    isa: str, num_outputs: int, num_inputs: int, num_rows: int
) -> None:
    weight, x = torch.randn(num_outputs, num_inputs), torch.randn(num_rows, num_inputs)
    with instructions(isa):
        out = CpuLinear(pack_dense(weight))(x)
    assert error(out, x.double() @ weight.double().T, weight, x) < SINGLE_ERROR


@pytest.mark.parametrize("input_form", InputForm, ids=lambda form: form.name)
@pytest.mark.parametrize(("num_outputs", "num_inputs"), SHAPES)
def test_bfloat16_weights_take_inputs_in_either_form(
    isa: str, num_outputs: int, num_inputs: int, input_form: InputForm
) -> None:
    weight = torch.randn(num_outputs, num_inputs).bfloat16()
    for num_rows in NUM_ROWS:
        x = torch.randn(num_rows, num_inputs)
        with instructions(isa):
            out = CpuLinear(pack_dense(weight), input_form=input_form)(x)
        taken = x.bfloat16() if input_form == InputForm.ROUNDED and isa == "avx512_bf16" else x
        assert error(out, taken.double() @ weight.double().T, weight, x) < SINGLE_ERROR


@pytest.mark.parametrize("coding", CODINGS[::4], ids=str)
def test_rows_of_an_embedding_are_the_weights(coding: Coding) -> None:
    coded = random_codes(coding, 37, 160)
    wanted = coded.weight.float()
    torch.testing.assert_close(coded.packed.dequantised(), wanted, rtol=1e-6, atol=1e-6)
