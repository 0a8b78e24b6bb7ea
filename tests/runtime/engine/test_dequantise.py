"""Every readable ggml type gives the very numbers that the gguf package gives."""

import gguf
import numpy as np
import pytest
import torch

from forebay_runtime.loading.dequantise import READABLE_TYPES, dequantise


def quantised(kind: str, num_rows: int, num_columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw rows of random numbers, and what the gguf package reads from them."""
    values = np.random.default_rng(0).normal(size=(num_rows, num_columns)).astype(np.float32)
    stored = gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    expected = gguf.dequantize(stored, gguf.GGMLQuantizationType[kind])
    raw = np.ascontiguousarray(stored).view(np.uint8).reshape(num_rows, -1)
    return torch.from_numpy(raw.copy()), torch.from_numpy(expected.reshape(values.shape).copy())


@pytest.mark.parametrize("kind", READABLE_TYPES)
@pytest.mark.parametrize("num_rows", [1, 3, 17_000], ids=["row", "rows", "many-pieces"])
def test_numbers_are_those_of_the_gguf_package(kind: str, num_rows: int) -> None:
    rows, expected = quantised(kind, num_rows, 64)
    out = torch.full((num_rows, 64), float("nan"))
    dequantise(rows, kind, out)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("kind", READABLE_TYPES)
def test_a_narrower_dtype_is_rounded_from_the_same_numbers(kind: str) -> None:
    rows, expected = quantised(kind, 5, 96)
    out = torch.empty(5, 96, dtype=torch.bfloat16)
    dequantise(rows, kind, out)
    assert torch.equal(out, expected.bfloat16())


def test_a_vector_is_read_too() -> None:
    values = torch.arange(6, dtype=torch.float32)
    out = torch.empty(6)
    dequantise(values.view(torch.uint8).view(6, 4), "F32", out)
    assert torch.equal(out, values)
