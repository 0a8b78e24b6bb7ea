"""A quantised matrix means what its codes, scales and zeros say, however it is cut and joined."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from forebay_kernels.quant_matrix import QuantMatrix, build_matrix, merge_rows, quantise

SHAPES = [
    pytest.param(bits, group, symmetric, id=f"int{bits}-{group or 'channel'}-{name}")
    for bits in (4, 8)
    for group in (32, 64, 128, None)
    for symmetric, name in ((True, "middle"), (False, "zeros"))
]


def _random(num_outputs: int, num_inputs: int, seed: int = 0) -> Tensor:
    return torch.randn(num_outputs, num_inputs, generator=torch.Generator().manual_seed(seed))


def _expected(codes: Tensor, scales: Tensor, zeros: Tensor, group: int) -> Tensor:
    """Weight by weight, as the definition says. Shapes: codes [N, K]; scales, zeros [G, N]."""
    out = torch.empty(codes.shape)
    for row in range(codes.shape[0]):
        for column in range(codes.shape[1]):
            place = (column // group, row)
            code, zero = int(codes[row, column]), int(zeros[place])
            out[row, column] = (code - zero) * scales[place]
    return out


def _reordered(bits: int = 4) -> QuantMatrix:
    """A matrix of 128 inputs in four groups, stored in an order of its own."""
    matrix = quantise(_random(5, 128), bits, 32, symmetric=False)
    order = torch.randperm(128, generator=torch.Generator().manual_seed(1))
    return build_matrix(matrix.codes(), matrix.scales, matrix.zeros, bits, 32, order)


@pytest.mark.parametrize("bits", [4, 8])
def test_every_code_is_dequantised_with_its_own_scale_and_zero(bits: int) -> None:
    generator = torch.Generator().manual_seed(bits)
    codes = torch.randint(2**bits, (7, 96), generator=generator, dtype=torch.uint8)
    scales = torch.rand(3, 7, generator=generator)
    zeros = torch.randint(2**bits, (3, 7), generator=generator, dtype=torch.uint8)
    matrix = build_matrix(codes, scales, zeros, bits, 32)
    assert torch.equal(matrix.codes(), codes)
    assert torch.equal(matrix.dequantised(torch.float32), _expected(codes, scales, zeros, 32))


def test_a_word_holds_neighbouring_inputs_of_one_output() -> None:
    codes = torch.arange(64, dtype=torch.uint8).remainder(16).reshape(2, 32)
    codes[1] = 15 - codes[1]
    words = build_matrix(codes, torch.ones(1, 2), None, 4, 32).words
    assert words.shape == (1, 2, 16)
    assert words[0, 0].tolist() == [i | (i << 4) for i in range(16)]
    assert words[0, 1].tolist() == [(15 - i) | ((15 - i) << 4) for i in range(16)]


@pytest.mark.parametrize(("bits", "group", "symmetric"), SHAPES)
def test_rounding_is_off_by_half_a_step_at_most(
    bits: int, group: int | None, symmetric: bool
) -> None:
    weight = _random(9, 256)
    matrix = quantise(weight, bits, group, symmetric)
    errors = (matrix.dequantised(torch.float32) - weight).unflatten(1, (-1, group or 256)).abs()
    # A zero of its own is rounded too, so an extreme may be cut by half a step more.
    steps = 0.5 if symmetric else 1.0
    assert (errors <= matrix.scales.T.unsqueeze(2) * steps * 1.0001).all()


@pytest.mark.parametrize("symmetric", [True, False], ids=["middle", "zeros"])
def test_what_is_all_zeros_stays_so(symmetric: bool) -> None:
    matrix = quantise(torch.zeros(3, 64), 4, 32, symmetric)
    assert not matrix.dequantised(torch.float32).any()


def test_scales_are_in_the_dtype_of_the_weight_and_codes_are_rounded_for_them() -> None:
    weight = _random(4, 128).to(torch.bfloat16)
    matrix = quantise(weight, 8, 64, symmetric=True)
    assert matrix.scales.dtype == torch.bfloat16
    errors = (matrix.dequantised(torch.float32) - weight.float()).unflatten(1, (-1, 64)).abs()
    # Of the extreme, that a scale rounded down cuts: 127 steps by 2 ** -9 at most.
    assert (errors <= matrix.scales.T.unsqueeze(2).float() * 0.75).all()


@pytest.mark.parametrize(("bits", "group", "symmetric"), SHAPES)
def test_its_bytes_are_those_of_its_parts(bits: int, group: int | None, symmetric: bool) -> None:
    matrix = quantise(_random(8, 256), bits, group, symmetric)
    num_groups = 256 // (group or 256)
    assert matrix.num_bytes == 8 * 256 * bits // 8 + num_groups * 8 * (4 if symmetric else 5)


@given(st.data())
def test_parts_side_by_side_are_the_whole(data: st.DataObject) -> None:
    bits, group = data.draw(st.sampled_from([4, 8])), data.draw(st.sampled_from([32, 64, None]))
    whole = quantise(_random(12, 192), bits, group, data.draw(st.booleans()))
    cut = data.draw(st.integers(1, 11))
    rows = [whole.split_rows(0, cut), whole.split_rows(cut, 12)]
    merged = merge_rows(rows)
    expected = whole.dequantised(torch.float32)
    assert torch.equal(merged.dequantised(torch.float32), expected)
    assert sum(part.num_bytes for part in rows) == whole.num_bytes
    column = data.draw(st.integers(1, 2)) * 64
    columns = [whole.split_columns(0, column), whole.split_columns(column, 192)]
    parts = [part.dequantised(torch.float32) for part in columns]
    assert torch.equal(torch.cat(parts, 1), expected)


def test_parts_without_zeros_join_those_with() -> None:
    parts = [quantise(_random(4, 64, seed), 4, 32, seed == 0) for seed in range(2)]
    expected = torch.cat([part.dequantised(torch.float32) for part in parts])
    assert torch.equal(merge_rows(parts).dequantised(torch.float32), expected)


def test_parts_with_different_groups_or_orders_do_not_join() -> None:
    parts = quantise(_random(4, 128), 4, 32, True), quantise(_random(4, 128), 4, 64, True)
    with pytest.raises(ValueError, match="group size"):
        merge_rows(parts)
    with pytest.raises(ValueError, match="order of inputs"):
        merge_rows((quantise(_random(5, 128), 4, 32, False), _reordered()))


@pytest.mark.parametrize("bits", [4, 8])
def test_an_order_of_inputs_is_undone(bits: int) -> None:
    matrix = _reordered(bits)
    assert matrix.input_order is not None and matrix.zeros is not None
    stored = _expected(matrix.codes(), matrix.scales, matrix.zeros, 32)
    weight = matrix.dequantised(torch.float32)
    assert torch.equal(weight[:, matrix.input_order], stored)


@pytest.mark.parametrize("cut", [1, 37, 64, 127])
def test_a_matrix_with_its_own_order_splits_anywhere(cut: int) -> None:
    matrix = _reordered()
    parts = matrix.split_columns(0, cut), matrix.split_columns(cut, 128)
    weights = [part.dequantised(torch.float32) for part in parts]
    assert torch.equal(torch.cat(weights, 1), matrix.dequantised(torch.float32))
    again = parts[1].split_columns(0, 1).dequantised(torch.float32)
    assert torch.equal(again, matrix.dequantised(torch.float32)[:, cut : cut + 1])


@pytest.mark.parametrize(
    ("group", "start", "end", "said"),
    [
        pytest.param(64, 0, 96, "group of 64", id="cuts-a-group"),
        pytest.param(64, 32, 128, "group of 64", id="begins-in-a-group"),
        pytest.param(None, 0, 40, "word of 32", id="cuts-a-word"),
        pytest.param(64, 64, 64, "the matrix has 128", id="nothing"),
        pytest.param(64, 64, 192, "the matrix has 128", id="too-far"),
    ],
)
def test_columns_are_split_on_borders_of_groups_alone(
    group: int | None, start: int, end: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        quantise(_random(4, 128), 4, group, True).split_columns(start, end)


@pytest.mark.parametrize(
    ("num_inputs", "bits", "group", "said"),
    [
        pytest.param(64, 3, 32, "3 bits", id="bits"),
        pytest.param(64, 4, 48, "groups of 48", id="group"),
        pytest.param(96, 4, 64, "96 inputs do not divide into groups of 64", id="inputs"),
        pytest.param(48, 4, None, "48 inputs do not divide into words of 32", id="words"),
    ],
)
def test_what_the_packing_cannot_hold_is_refused(
    num_inputs: int, bits: int, group: int | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        quantise(_random(4, num_inputs), bits, group, True)
