"""AWQ's and GPTQ's layouts come over bit by bit; they are built here as their packers do."""

import pytest
import torch
from torch import Tensor

from forebay_kernels.quant_formats import GptqLayout, from_awq, from_gptq

NUM_OUTPUTS, NUM_INPUTS = 24, 128


def _random_codes(*shape: int, bits: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(shape[0])
    return torch.randint(2**bits, shape, generator=generator)


def _word(codes: list[int], bits: int) -> int:
    """One 32-bit word, the first code lowest, as int32 holds it."""
    value = sum(code << (bits * place) for place, code in enumerate(codes))
    return value - 2**32 if value >= 2**31 else value


def _pack_rows(codes: Tensor, bits: int, order: list[int]) -> Tensor:
    """Neighbours along the last dimension in one word, in an order. Shapes: codes [A, B]."""
    size = 32 // bits
    rows = [
        [_word([row[start + place] for place in order], bits) for start in range(0, len(row), size)]
        for row in codes.tolist()
    ]
    return torch.tensor(rows, dtype=torch.int32)


def _weight(codes: Tensor, zeros: Tensor, scales: Tensor, groups: Tensor) -> Tensor:
    """(code - zero) * scale by each input's group: [N, K] of codes [K, N]; zeros, scales [G, N]."""
    return ((codes - zeros[groups]) * scales[groups].float()).T


@pytest.mark.parametrize("group", [32, 64, 128])
def test_awq(group: int) -> None:
    interleaved = [0, 2, 4, 6, 1, 3, 5, 7]
    codes = _random_codes(NUM_INPUTS, NUM_OUTPUTS)
    zeros = _random_codes(NUM_INPUTS // group, NUM_OUTPUTS)
    scales = torch.rand(zeros.shape).half()
    qweight, qzeros = (_pack_rows(each, 4, interleaved) for each in (codes, zeros))
    matrix = from_awq(qweight, qzeros, scales, group)
    expected = _weight(codes, zeros, scales, torch.arange(NUM_INPUTS) // group)
    assert torch.equal(matrix.dequantised(torch.float32), expected)


def test_awq_without_zeros_has_the_middle_one() -> None:
    codes = _random_codes(NUM_INPUTS, NUM_OUTPUTS)
    qweight = _pack_rows(codes, 4, [0, 2, 4, 6, 1, 3, 5, 7])
    matrix = from_awq(qweight, None, torch.ones(1, NUM_OUTPUTS), 128)
    assert torch.equal(matrix.dequantised(torch.float32), (codes - 8).float().T)


@pytest.mark.parametrize("acts_in_order", [True, False], ids=["in-order", "act-order"])
@pytest.mark.parametrize("zero_offset", [1, 0], ids=["v1", "v2"])
@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 128), (8, 64)])
def test_gptq(bits: int, group: int, zero_offset: int, acts_in_order: bool) -> None:
    size = list(range(32 // bits))
    codes = _random_codes(NUM_INPUTS, NUM_OUTPUTS, bits=bits)
    zeros = _random_codes(NUM_INPUTS // group, NUM_OUTPUTS, bits=bits)
    zeros[0, 0] = 0
    scales = torch.rand(zeros.shape).half()
    groups = torch.arange(NUM_INPUTS) // group
    if not acts_in_order:
        groups = groups[torch.randperm(NUM_INPUTS, generator=torch.Generator().manual_seed(2))]
    qweight = _pack_rows(codes.T, bits, size).T
    qzeros = _pack_rows((zeros - zero_offset) % 2**bits, bits, size)
    matrix = from_gptq(qweight, qzeros, scales, groups, GptqLayout(bits, group, zero_offset))
    assert torch.equal(matrix.dequantised(torch.float32), _weight(codes, zeros, scales, groups))
    assert (matrix.input_order is None) == (acts_in_order or len(zeros) == 1)


def test_gptq_without_zeros_has_the_middle_one_and_one_group_may_be_all() -> None:
    codes = _random_codes(NUM_INPUTS, NUM_OUTPUTS, bits=8)
    qweight = _pack_rows(codes.T, 8, [0, 1, 2, 3]).T
    matrix = from_gptq(qweight, None, torch.ones(1, NUM_OUTPUTS), None, GptqLayout(8, None))
    assert torch.equal(matrix.dequantised(torch.float32), (codes - 128).float().T)


def test_groups_of_uneven_size_are_refused() -> None:
    groups = torch.arange(NUM_INPUTS) // 32
    groups[0] = 3
    qweight = torch.zeros(NUM_INPUTS // 8, NUM_OUTPUTS, dtype=torch.int32)
    with pytest.raises(ValueError, match="32 inputs into each group"):
        from_gptq(qweight, None, torch.ones(4, NUM_OUTPUTS), groups, GptqLayout(4, 32))
