"""Rotation and cache write as one kernel are what the reference says, for every kind of cache."""

from dataclasses import dataclass

import pytest
import torch

from forebay_kernels import ops, reference

pytestmark = pytest.mark.interpreted

NUM_BLOCKS, BLOCK_SIZE = 5, 16


@dataclass(frozen=True)
class Heads:
    """A model's heads: H, K, D, R."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int


HEADS = {
    "nine-of-64": Heads(9, 3, 64, 64),
    "three-over-one-of-96": Heads(3, 1, 96, 96),
    "fourteen-over-one-of-80": Heads(14, 1, 80, 80),
    "a-quarter-of-80-is-turned": Heads(3, 3, 80, 20),
    "most-of-96-is-turned": Heads(4, 1, 96, 72),
    "of-128": Heads(4, 2, 128, 128),
    "of-10": Heads(3, 1, 10, 6),
}
ALL_HEADS = pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS.keys())
KINDS = pytest.mark.parametrize("kind", ops.KV_KINDS)
STEPS = {"plain": 0.0, "fp8": 1 / 8, "int8": 1 / 127, "int4": 1 / 7}
"""How far two may be apart that were rounded from almost the same: as a share of the largest."""


def new_layer(heads: Heads, kind: str, dtype: torch.dtype) -> ops.KvLayer:
    shape = (NUM_BLOCKS, BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
    return ops.new_kv_layers(1, shape, kind, dtype, torch.device("cpu"))[0]


def build_rotation(rotary_dim: int, num_rows: int, dtype: torch.dtype) -> ops.Rotation:
    frequencies = 100.0 ** -(torch.arange(0, rotary_dim, 2) / rotary_dim)
    cos, sin = ops.rope_table(frequencies, 300, 1.3).to(dtype)
    return ops.Rotation(cos, sin, torch.randint(0, 300, (num_rows,)))


def build_slots(num_rows: int) -> torch.Tensor:
    """Slots of all but the last fifth of the rows, and every fourth has none."""
    slots = torch.randperm(NUM_BLOCKS * BLOCK_SIZE)[: num_rows - num_rows // 5]
    slots[3::4] = -1
    return slots


def assert_alike(ours: ops.KvLayer, expected: ops.KvLayer, tolerance: float) -> None:
    """All but a few numbers are equal, as rounding from almost the same differs rarely."""
    for name in ("k_scale", "v_scale"):
        scales = getattr(ours, name), getattr(expected, name)
        torch.testing.assert_close(*scales, atol=tolerance, rtol=tolerance)
    for out, wanted in zip(reference.read_kv(ours), reference.read_kv(expected), strict=True):
        step = STEPS[ours.kind] * max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(out, wanted, atol=tolerance + step, rtol=tolerance)
        if ours.kind != "plain":
            is_near = (out - wanted).abs() <= tolerance * (1 + wanted.abs())
            assert is_near.float().mean() > 0.99


def check(heads: Heads, kind: str, num_rows: int, dtype: torch.dtype, has_norms: bool) -> None:
    torch.manual_seed(num_rows)
    num_turned = heads.num_heads + heads.num_kv_heads
    qkv = torch.randn(num_rows, (num_turned + heads.num_kv_heads) * heads.head_dim).to(dtype)
    qkv[0, -3:] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    weight = torch.rand(num_turned, heads.head_dim)
    norms = ops.HeadNorms(weight.to(dtype), 1e-5) if has_norms else None
    rotation = build_rotation(heads.rotary_dim, num_rows, dtype)
    slots = build_slots(num_rows)
    ours, expected = (new_layer(heads, kind, dtype) for _ in range(2))
    q = ops.rotate_and_write(qkv, norms, rotation, ours, slots)
    wanted = reference.rotate_and_write(qkv, norms, rotation, expected, slots)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(q, wanted, atol=tolerance, rtol=tolerance)
    assert_alike(ours, expected, tolerance)


@ALL_HEADS
@KINDS
@pytest.mark.parametrize("has_norms", [True, False], ids=["normed", "plain"])
def test_a_step_of_decodes(heads: Heads, kind: str, has_norms: bool) -> None:
    check(heads, kind, 5, torch.float32, has_norms)


@KINDS
@pytest.mark.parametrize("num_rows", [1, 67])
def test_one_token_and_many(kind: str, num_rows: int) -> None:
    check(HEADS["nine-of-64"], kind, num_rows, torch.float16, has_norms=True)


@KINDS
def test_keys_and_values_without_a_rotation(kind: str) -> None:
    heads = HEADS["three-over-one-of-96"]
    k, v = torch.randn(2, 9, 1, 96).unbind()
    ours, expected = (new_layer(heads, kind, torch.float32) for _ in range(2))
    slots = build_slots(9)
    ops.write_kv(k, v, ours, slots)
    reference.write_kv(k[: len(slots)], v[: len(slots)], expected, slots)
    assert_alike(ours, expected, 1e-6)


def test_float8_is_rounded_as_torch_does() -> None:
    heads = Heads(1, 1, 96, 96)
    exponents = torch.arange(-12, 10).repeat_interleave(16)
    numbers = (1 + torch.arange(352) % 16 / 16) * 2.0**exponents
    numbers = torch.cat((numbers, -numbers, torch.zeros(8), torch.tensor([1e5, -1e5])))
    k = torch.nn.functional.pad(numbers, (0, -len(numbers) % 96)).view(-1, 1, 96)
    layer = new_layer(heads, "fp8", torch.float32)
    ops.write_kv(k, k, layer, torch.arange(len(k)))
    kept = layer.k.flatten(0, 1)[: len(k)].float()
    assert torch.equal(kept, k.clamp(-448, 448).to(torch.float8_e4m3fn).float())


def test_a_tokens_numbers_depend_on_the_token_alone() -> None:
    heads = HEADS["nine-of-64"]
    qkv = torch.randn(6, 15 * 64)
    rotation, slots = build_rotation(64, 6, torch.float32), torch.arange(6)
    norms = ops.HeadNorms(torch.rand(12, 64), 1e-5)
    whole, single = (new_layer(heads, "int8", torch.float32) for _ in range(2))
    q = ops.rotate_and_write(qkv, norms, rotation, whole, slots)
    for row in range(6):
        one = slice(row, row + 1)
        alone = ops.Rotation(rotation.cos, rotation.sin, rotation.positions[one])
        out = ops.rotate_and_write(qkv[one], norms, alone, single, slots[one])
        assert torch.equal(out, q[one])
    assert torch.equal(single.k, whole.k) and torch.equal(single.v_scale, whole.v_scale)
