"""On a GPU, in bfloat16, norms, gates, rotations and draws are what a CPU makes of them."""

import pytest
import torch

from forebay_kernels import ops, reference
from forebay_kernels.outcome import DRAWN
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.draw import TorchDrawing
from forebay_runtime.sampling.portable_choice import PortableChoice

pytestmark = pytest.mark.gpu

DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
ROWS = pytest.mark.parametrize("num_rows", [1, 67, 2049])


def near(out: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(out.cpu().float(), expected.float(), atol=2e-2, rtol=2e-2)


@DTYPES
@ROWS
@pytest.mark.parametrize("size", [576, 1000, 4096, 16_384])
def test_norms(dtype: torch.dtype, num_rows: int, size: int) -> None:
    x, residual = (torch.randn(num_rows, size).to(dtype) for _ in range(2))
    for weight in (torch.rand(size).to(dtype), torch.rand(size)):
        near(ops.rms_norm(x.cuda(), weight.cuda(), 1e-5), reference.rms_norm(x, weight, 1e-5))
        expected = reference.add_rms_norm(x, residual, weight, 1e-5)
        outs = ops.add_rms_norm(x.cuda(), residual.cuda(), weight.cuda(), 1e-5)
        for out, wanted in zip(outs, expected, strict=True):
            near(out, wanted)


@DTYPES
@ROWS
@pytest.mark.parametrize("gate", ["silu_mul", "gelu_tanh_mul"])
def test_gates(dtype: torch.dtype, num_rows: int, gate: str) -> None:
    gate_up = (torch.randn(num_rows, 2 * 1000) * 3).to(dtype)
    near(getattr(ops, gate)(gate_up.cuda()), getattr(reference, gate)(gate_up))


@DTYPES
def test_look_ups_and_caps(dtype: torch.dtype) -> None:
    table, token_ids = torch.randn(1000, 576).to(dtype), torch.randint(0, 1100, (67,))
    found = ops.embedding(token_ids.cuda(), table.cuda(), 50)
    assert torch.equal(found.cpu(), reference.embedding(token_ids, table, 50))
    logits = (torch.randn(3, 49_152) * 40).to(dtype)
    near(ops.softcap(logits.cuda(), 30.0), torch.tanh(logits.float() / 30) * 30)


@DTYPES
@pytest.mark.parametrize("kind", ops.KV_KINDS)
@pytest.mark.parametrize(
    ("head_dim", "rotary_dim"), [(64, 64), (128, 128), (80, 20), (96, 72), (256, 256)]
)
def test_rotation_and_cache_write(
    dtype: torch.dtype, kind: str, head_dim: int, rotary_dim: int
) -> None:
    num_rows, num_heads, num_kv_heads = 67, 9, 3
    shape = (9, 16, num_kv_heads, head_dim)
    ours, expected = (
        ops.new_kv_layers(1, shape, kind, dtype, torch.device(device))[0]
        for device in ("cuda", "cpu")
    )
    frequencies = 100.0 ** -(torch.arange(0, rotary_dim, 2) / rotary_dim)
    cos, sin = ops.rope_table(frequencies, 300).to(dtype)
    positions, slots = torch.randint(0, 300, (num_rows,)), torch.randperm(9 * 16)[:num_rows]
    slots[::5] = -1
    qkv = torch.randn(num_rows, (num_heads + 2 * num_kv_heads) * head_dim).to(dtype)
    weight = torch.rand(num_heads + num_kv_heads, head_dim).to(dtype)
    rotation = ops.Rotation(cos.cuda(), sin.cuda(), positions.cuda())
    q = ops.rotate_and_write(
        qkv.cuda(), ops.HeadNorms(weight.cuda(), 1e-5), rotation, ours, slots.cuda()
    )
    rotation = ops.Rotation(cos, sin, positions)
    near(
        q,
        reference.rotate_and_write(qkv, ops.HeadNorms(weight, 1e-5), rotation, expected, slots),
    )
    tolerance = {"plain": 2e-2, "fp8": 0.3, "int8": 0.1, "int4": 0.8}[kind]
    for out, wanted in zip(reference.read_kv(ours), reference.read_kv(expected), strict=True):
        torch.testing.assert_close(out.cpu(), wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("vocab_size", [1000, 49_152, 151_936])
def test_seeds_give_the_tokens_that_a_cpu_gives(vocab_size: int) -> None:
    from forebay_runtime.sampling.device_choice import DeviceChoice

    wishes = [{}, {"top_k": 50}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 40, "top_p": 0.8}]
    wishes += [{"temperature": 0}, {"presence_penalty": 1.0}, {"logit_bias": ((3, 5.0),)}]

    def build() -> list[Request]:
        return [
            Request(str(seed), [1], SamplingParams(max_tokens=1, seed=seed, **wishes[seed % 8]))
            for seed in range(128)
        ]

    logits = torch.randn(128, vocab_size) * 2.5
    device = torch.device("cuda")
    drawn = DeviceChoice(frozenset(), vocab_size, device).choose(logits.cuda(), build()).tolist()
    expected = list(PortableChoice(frozenset(), TorchDrawing()).choose(logits, build()))
    assert drawn[1] == [DRAWN] * 128
    # Two tokens of a race, or of a threshold, may be within rounding.
    assert sum(one != other for one, other in zip(drawn[0], expected[0], strict=True)) <= 1
