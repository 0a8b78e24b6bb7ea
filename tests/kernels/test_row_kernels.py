"""Norm, rotation, gate and products are what the reference says, at odd sizes and in two dtypes."""

import pytest
import torch

from forebay_kernels import reference
from forebay_kernels.portable import elementwise
from forebay_kernels.portable.linear import Linear

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


def near(out: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-5 if out.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)


@DTYPES
@pytest.mark.parametrize("size", [1, 7, 576])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4], ids=["tiny", "usual", "large"])
def test_rms_norm(dtype: torch.dtype, size: int, scale: float) -> None:
    x, weight = (torch.randn(3, size) * scale).to(dtype), torch.randn(size).to(dtype)
    near(elementwise.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))


@DTYPES
def test_a_weight_may_be_wider_than_what_it_norms(dtype: torch.dtype) -> None:
    x, weight = torch.randn(3, 7).to(dtype), 1 + torch.randn(7) / 100
    out = elementwise.rms_norm(x, weight, 1e-5)
    assert out.dtype == dtype
    near(out, reference.rms_norm(x, weight, 1e-5))


@DTYPES
def test_heads_are_normed_each_by_itself(dtype: torch.dtype) -> None:
    x, weight = torch.randn(3, 5, 8).to(dtype), torch.randn(5, 8).to(dtype)
    heads = [reference.rms_norm(x[:, head], weight[head], 1e-5) for head in range(5)]
    near(elementwise.rms_norm_heads(x, weight, 1e-5), torch.stack(heads, 1))


def frequencies(num_dims: int) -> torch.Tensor:
    return 10_000.0 ** -(torch.arange(0, num_dims, 2) / num_dims)


@DTYPES
@pytest.mark.parametrize("head_dim", [2, 10, 64])
def test_rotation(dtype: torch.dtype, head_dim: int) -> None:
    cos, sin = elementwise.rope_table(frequencies(head_dim), 500).to(dtype)
    positions = torch.tensor([0, 1, 499, 3])
    x = torch.randn(4, 5, head_dim).to(dtype)
    half = head_dim // 2
    expected = reference.rotate(x, cos[positions, 0, :half], sin[positions, 0, half:])
    near(elementwise.rotate(x, cos[positions], sin[positions]), expected)


def test_a_rotation_keeps_lengths_and_makes_products_depend_on_distance_alone() -> None:
    cos, sin = elementwise.rope_table(frequencies(16), 40)
    q, k = torch.randn(1, 1, 16), torch.randn(1, 1, 16)

    def product(q_position: int, k_position: int) -> float:
        turned = [
            elementwise.rotate(x, cos[p : p + 1], sin[p : p + 1])
            for x, p in ((q, q_position), (k, k_position))
        ]
        assert float(turned[0].norm()) == pytest.approx(float(q.norm()), rel=1e-5)
        return float((turned[0] * turned[1]).sum())

    assert product(30, 25) == pytest.approx(product(7, 2), abs=1e-4)


def test_a_part_of_a_head_is_rotated_alone() -> None:
    cos, sin = elementwise.rope_table(frequencies(6), 9)
    x = torch.randn(9, 2, 10)
    out = elementwise.rotate(x, cos, sin)
    near(out[..., :6], elementwise.rotate(x[..., :6].contiguous(), cos, sin))
    assert torch.equal(out[..., 6:], x[..., 6:])


@DTYPES
@pytest.mark.parametrize("gate", ["silu_mul", "gelu_tanh_mul"])
def test_the_gate(dtype: torch.dtype, gate: str) -> None:
    gate_up = (torch.randn(5, 2 * 11) * 3).to(dtype)
    before = gate_up.clone()
    near(getattr(elementwise, gate)(gate_up), getattr(reference, gate)(gate_up))
    assert torch.equal(gate_up, before)


def test_a_soft_cap_bends_only_what_is_large() -> None:
    bent = elementwise.softcap(torch.tensor([-1e6, -0.01, 0.0, 0.01, 29.0, 1e6]), 30.0)
    near(bent[[0, 5]], torch.tensor([-30.0, 30.0]))
    near(bent[1:4], torch.tensor([-0.01, 0.0, 0.01]))
    assert 20 < bent[4] < 29


@pytest.mark.parametrize("num_rows", [0, 1, 2, 8, 33])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(1, 1), (7, 5), (33, 17), (96, 64)])
@pytest.mark.parametrize("repack", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no-bias"])
def test_a_product(
    num_rows: int, num_outputs: int, num_inputs: int, repack: bool, has_bias: bool
) -> None:
    weight, x = torch.randn(num_outputs, num_inputs), torch.randn(num_rows, num_inputs)
    bias = torch.randn(num_outputs) if has_bias else None
    residual = torch.randn(num_rows, num_outputs)
    expected = x @ weight.T + (bias if bias is not None else 0)
    linear = Linear(weight.clone(), bias, repack=repack)
    with torch.inference_mode():
        near(linear(x), expected)
        near(linear.add_to(residual.clone(), x), residual + expected)
    assert linear.num_bytes == 4 * num_outputs * (num_inputs + has_bias)


def test_a_product_in_a_dtype_that_is_not_packed() -> None:
    weight, x = torch.randn(7, 5).bfloat16(), torch.randn(3, 5).bfloat16()
    linear = Linear(weight)
    near(linear(x), x @ weight.T)
    near(linear.add_to(torch.ones(3, 7).bfloat16(), x), 1 + x @ weight.T)
