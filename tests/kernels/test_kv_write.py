"""Keys and values land in their slots as each kind of cache keeps them, and are attended so."""

import pytest
import torch

from forebay_kernels import reference
from forebay_kernels.kv_layer import KV_KINDS, KvLayer, new_kv_layers
from forebay_kernels.portable import attention, batch_invariant, kv_write
from forebay_kernels.portable.elementwise import rope_table
from forebay_kernels.ragged import Ragged
from forebay_kernels.rotation import HeadNorms, Rotation

KINDS = pytest.mark.parametrize("kind", KV_KINDS)
NUM_BLOCKS, BLOCK_SIZE, K, D = 9, 4, 3, 10
TOLERANCES = {"plain": 1e-5, "fp8": 0.08, "int8": 0.02, "int4": 0.3}


def layers(kind: str, dtype: torch.dtype = torch.float32) -> tuple[KvLayer, ...]:
    shape = (NUM_BLOCKS, BLOCK_SIZE, K, D)
    return new_kv_layers(2, shape, kind, dtype, torch.device("cpu"))


def assert_alike(layer: KvLayer, expected: KvLayer) -> None:
    """Both hold the same; scales may differ by rounding, and whole numbers by one where they do."""
    for name in ("k_scale", "v_scale"):
        torch.testing.assert_close(getattr(layer, name), getattr(expected, name))
    atol = 0.0 if layer.kind == "plain" else TOLERANCES[layer.kind]
    for out, wanted in zip(reference.read_kv(layer), reference.read_kv(expected), strict=True):
        torch.testing.assert_close(out, wanted, atol=atol, rtol=1e-5)


@KINDS
def test_keys_and_values_go_to_their_slots_and_padding_nowhere(kind: str) -> None:
    k, v = torch.randn(7, K, D), torch.randn(7, K, D)
    k[1, 2], v[2, 0] = float("nan"), 0.0
    k[3, 1, 4], v[3, 1, 5] = float("inf"), float("-inf")
    slots = torch.tensor([17, 0, 35, 4, 5])
    ours, expected = layers(kind)
    kv_write.write_kv(k, v, ours, slots)
    reference.write_kv(k[:5], v[:5], expected, slots)
    assert_alike(ours, expected)
    read = reference.read_kv(ours)[0].flatten(0, 1)
    untouched = torch.ones(len(read), dtype=torch.bool).index_fill(0, slots, False)
    assert read.isfinite().all() and not read[untouched].any()


@KINDS
def test_what_is_kept_is_near_what_came(kind: str) -> None:
    k, v, slots = torch.randn(36, K, D), torch.randn(36, K, D), torch.randperm(36)
    layer = layers(kind)[0]
    kv_write.write_kv(k, v, layer, slots)
    for kept, came in zip(reference.read_kv(layer), (k, v), strict=True):
        worst = TOLERANCES[kind] * came.abs().amax()
        assert (kept.flatten(0, 1)[slots] - came).abs().max() <= worst


@KINDS
@pytest.mark.parametrize("num_turned", [10, 6], ids=["whole-head", "part-of-a-head"])
@pytest.mark.parametrize("has_norms", [True, False], ids=["normed", "plain"])
def test_heads_are_normed_turned_and_written(kind: str, num_turned: int, has_norms: bool) -> None:
    num_heads = 5
    frequencies = 100.0 ** -(torch.arange(0, num_turned, 2) / num_turned)
    rotation = Rotation(*rope_table(frequencies, 40), torch.tensor([7, 0, 39, 12]))
    norms = HeadNorms(torch.rand(num_heads + K, D), 1e-5) if has_norms else None
    qkv, slots = torch.randn(4, (num_heads + 2 * K) * D), torch.tensor([3, 9, 20])
    ours, expected = layers(kind)
    q = kv_write.rotate_and_write(qkv, norms, rotation, ours, slots)
    padded = torch.cat((slots, torch.tensor([-1])))
    near = reference.rotate_and_write(qkv, norms, rotation, expected, padded)
    torch.testing.assert_close(q, near)
    if kind == "plain":
        torch.testing.assert_close(ours.k, expected.k)
        torch.testing.assert_close(ours.v, expected.v)
    else:
        assert_alike(ours, expected)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_attention_reads_every_kind_of_cache(kind: str, dtype: torch.dtype) -> None:
    layer = layers(kind, dtype)[0]
    kv = torch.randn(2, 36, K, D).to(dtype)
    kv_write.write_kv(kv[0], kv[1], layer, torch.randperm(36))
    tables = torch.tensor([[3, 1, 8], [0, 2, 5], [4, 7, 6]], dtype=torch.int32)
    ragged = Ragged.of((1, 1, 4), (5, 9, 11), tables, torch.zeros(0, dtype=torch.int64))
    q = torch.randn(6, 6, D).to(dtype)
    plan = attention.AttentionPlan(ragged, BLOCK_SIZE, dtype)
    expected = reference.paged_attention(q, layer, ragged)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    rule = attention.FULL_ATTENTION
    for attend in (attention.paged_attention, batch_invariant.paged_attention):
        out = attend(q, layer, plan, rule)
        torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance)


def test_a_cache_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="int3 is no kind of KV cache; possible are plain, fp8"):
        layers("int3")
    with pytest.raises(ValueError, match="head_dim 5 is odd"):
        new_kv_layers(1, (1, 1, 1, 5), "int4", torch.float32, torch.device("cpu"))
