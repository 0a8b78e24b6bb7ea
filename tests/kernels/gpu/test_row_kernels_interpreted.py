"""Norms, gates, caps and look-ups as kernels are what the reference says, at odd sizes."""

import pytest
import torch

from forebay_kernels import ops, reference

pytestmark = pytest.mark.interpreted

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
ROWS = pytest.mark.parametrize("num_rows", [0, 1, 3, 67])
SIZES = pytest.mark.parametrize("size", [96, 576, 1000])


def near(out: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 2e-6 if out.dtype == torch.float32 else 2e-3
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)


@DTYPES
@ROWS
@SIZES
def test_rms_norm(dtype: torch.dtype, num_rows: int, size: int) -> None:
    x, weight = torch.randn(num_rows, size).to(dtype), torch.rand(size).to(dtype)
    before = x.clone()
    near(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    assert torch.equal(x, before)


@DTYPES
@ROWS
@SIZES
def test_a_sum_and_its_norm(dtype: torch.dtype, num_rows: int, size: int) -> None:
    x, residual = (torch.randn(num_rows, size).to(dtype) for _ in range(2))
    weight = torch.rand(size).to(dtype)
    expected = reference.add_rms_norm(x, residual, weight, 1e-5)
    for out, wanted in zip(ops.add_rms_norm(x, residual, weight, 1e-5), expected, strict=True):
        near(out, wanted)
    assert torch.equal(residual, expected[1])


@pytest.mark.parametrize("has_residual", [False, True], ids=["norm", "sum-and-norm"])
@pytest.mark.parametrize("size", [8192, 8200])
def test_a_row_longer_than_a_tile(size: int, has_residual: bool) -> None:
    x, residual, weight = torch.randn(2, size), torch.randn(2, size), torch.rand(size)
    if has_residual:
        expected = reference.add_rms_norm(x, residual, weight, 1e-5)[0]
        near(ops.add_rms_norm(x, residual, weight, 1e-5)[0], expected)
    else:
        near(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


def test_a_weight_may_be_wider_than_what_it_norms() -> None:
    x, weight = torch.randn(3, 96).half(), 1 + torch.randn(96) / 1000
    out = ops.rms_norm(x, weight, 1e-5)
    assert out.dtype == torch.float16
    near(out, reference.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("scale", [1e-6, 1e4], ids=["tiny", "large"])
def test_norms_of_small_and_large_numbers(scale: float) -> None:
    x, weight = torch.randn(3, 576) * scale, torch.rand(576)
    near(ops.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


@DTYPES
@ROWS
@pytest.mark.parametrize("size", [11, 1000, 1536])
@pytest.mark.parametrize("gate", ["silu_mul", "gelu_tanh_mul"])
def test_the_gate(dtype: torch.dtype, num_rows: int, size: int, gate: str) -> None:
    gate_up = (torch.randn(num_rows, 2 * size) * 3).to(dtype)
    near(getattr(ops, gate)(gate_up), getattr(reference, gate)(gate_up))


@DTYPES
@SIZES
def test_an_embedding_and_a_shard_of_one(dtype: torch.dtype, size: int) -> None:
    table = torch.randn(1000, size).to(dtype)
    token_ids = torch.tensor([0, 999, 3, 3, 500])
    assert torch.equal(ops.embedding(token_ids, table), table[token_ids])
    first_id, shard = 3, table[3:500]
    found = ops.embedding(token_ids, shard, first_id)
    assert torch.equal(found, reference.embedding(token_ids, shard, first_id))
    assert found.any(1).tolist() == [False, False, True, True, False]
    assert ops.embedding(token_ids[:0], table).shape == (0, size)


@DTYPES
@pytest.mark.parametrize("vocab_size", [1000, 49152])
def test_a_soft_cap(dtype: torch.dtype, vocab_size: int) -> None:
    logits = (torch.randn(3, vocab_size) * 40).to(dtype)
    logits[0, :5] = torch.tensor([0.0, 1e-3, -1e-3, 6e4, -6e4])
    out = ops.softcap(logits.clone(), 30.0)
    assert out.dtype == torch.float32
    torch.testing.assert_close(
        out, torch.tanh(logits.double() / 30).float() * 30, atol=3e-6, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["rms_norm", "silu_mul", "softcap"])
def test_a_rows_numbers_depend_on_the_row_alone(name: str) -> None:
    x = torch.randn(7, 1152)
    others = {"rms_norm": (torch.rand(1152), 1e-5), "softcap": (30.0,)}.get(name, ())
    whole = getattr(ops, name)(x.clone(), *others)
    for row in range(7):
        assert torch.equal(
            getattr(ops, name)(x[row : row + 1].clone(), *others), whole[row : row + 1]
        )


def test_bfloat16_is_refused_as_the_interpreter_computes_it_wrong() -> None:
    with pytest.raises(ValueError, match="interpreter computes no bfloat16"):
        ops.silu_mul(torch.zeros(1, 2).bfloat16())
