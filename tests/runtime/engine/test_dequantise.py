"""Every readable ggml type gives the very numbers that the gguf package gives."""

import gguf
import numpy as np
import pytest
import torch

from forebay_budget.layout import SUPPORTED_DTYPES
from forebay_runtime.loading.dequantise import CODED_TYPES, READABLE_TYPES, dequantise, read_codes
from ggml_blocks import quantise

_RNG = np.random.default_rng(0)


def quantised(kind: str, num_rows: int, num_columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw rows of random numbers, and what the gguf package reads from them."""
    values = _RNG.normal(size=(num_rows, num_columns)).astype(np.float32)
    stored, expected = quantise(values, gguf.GGMLQuantizationType[kind])
    raw = stored.view(np.uint8).reshape(num_rows, -1)
    return torch.from_numpy(raw.copy()), torch.from_numpy(expected.copy())


@pytest.mark.parametrize("kind", READABLE_TYPES)
@pytest.mark.parametrize("num_rows", [1, 3, 3_000], ids=["row", "rows", "many-pieces"])
def test_numbers_are_those_of_the_gguf_package(kind: str, num_rows: int) -> None:
    rows, expected = quantised(kind, num_rows, 512)
    out = torch.full((num_rows, 512), float("nan"))
    dequantise(rows, kind, out)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("kind", READABLE_TYPES)
def test_a_narrower_dtype_is_rounded_from_the_same_numbers(kind: str) -> None:
    rows, expected = quantised(kind, 5, 256)
    out = torch.empty(5, 256, dtype=torch.bfloat16)
    dequantise(rows, kind, out)
    assert torch.equal(out, expected.bfloat16())


def test_what_sizing_takes_is_what_the_loader_reads() -> None:
    assert set(SUPPORTED_DTYPES["gguf"]) == set(READABLE_TYPES)


def test_a_vector_is_read_too() -> None:
    values = torch.arange(6, dtype=torch.float32)
    out = torch.empty(6)
    dequantise(values.view(torch.uint8).view(6, 4), "F32", out)
    assert torch.equal(out, values)


@pytest.mark.parametrize("kind", CODED_TYPES)
@pytest.mark.parametrize("num_rows", [1, 67, 3_000], ids=["row", "rows", "many-pieces"])
def test_codes_with_their_scales_stand_for_the_same_numbers(kind: str, num_rows: int) -> None:
    rows, expected = quantised(kind, num_rows, 512)

    assert torch.equal(read_codes(rows, kind).dequantised(), expected)


@pytest.mark.parametrize("kind", CODED_TYPES)
def test_some_columns_are_read_as_codes_by_whole_groups(kind: str) -> None:
    rows, expected = quantised(kind, 5, 1_024)
    matrix = read_codes(rows, kind, slice(224, 992))

    assert torch.equal(matrix.dequantised(), expected[:, 224:992])
    assert int(matrix.codes.max()) < 1 << matrix.bits
