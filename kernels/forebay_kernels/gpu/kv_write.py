"""The cache write, with quantisation fused; batch-invariant, as each head is scaled by itself.

The first half of a head and the second lie in two tiles: so a rotation turns one by the other, and
int4 puts a number of each in a byte.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.launch_tables.rotate_and_write import TABLE
from forebay_kernels.gpu.model_shape import Dtype, KvKind, ModelShape
from forebay_kernels.gpu.variant import Variant, divisible
from forebay_kernels.kv_layer import KvLayer


@triton.jit
def _to_finite(x):
    """NaN becomes 0, and infinities the largest that every dtype can hold; float32 in and out."""
    x = tl.where(x == x, x, 0.0)
    x = tl.where(x == float("inf"), 65504.0, x)
    return tl.where(x == float("-inf"), -65504.0, x)


@triton.jit
def _round(x):
    """To the nearest whole number, halves to even, of numbers that float32 holds whole."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _to_e4m3(x):
    """The bits of float8_e4m3fn, [..] uint8: what sm_80 has no instruction for."""
    size = tl.minimum(tl.abs(x), 448.0)
    bits = size.to(tl.int32, bitcast=True)
    # Of the mantissa three bits stay, rounded to even; the exponent's bias falls from 127 to 7.
    usual = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2 ** -6 the steps are 2 ** -9, which are the last bits of numbers just above 2 ** 14.
    small = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return (tl.where(size < 0.015625, small, usual) + tl.where(x < 0, 128, 0)).to(tl.uint8)


@triton.jit
def keep_heads(
    first,  # [HEADS, HALF] float32: each head's first half, zeros past D / 2
    second,  # [HEADS, HALF]
    kept,  # [P, B, K, D], or a kind's own form of it
    scales,  # [P, B, K]
    row,  # [HEADS, 1] int64: slot * K + head, negative where the slot is
    is_kept,  # [HEADS, 1]
    columns,  # [1, HALF]
    D: tl.constexpr,
    KIND: tl.constexpr,
):
    """Write some heads of a token as a cache of that kind keeps them."""
    is_in = is_kept & (columns < D // 2)
    first, second = _to_finite(first), _to_finite(second)
    if KIND == "plain":
        place = kept + row * D + columns
        tl.store(place, first.to(kept.dtype.element_ty), is_in)
        tl.store(place + D // 2, second.to(kept.dtype.element_ty), is_in)
    elif KIND == "fp8":
        place = kept + row * D + columns
        tl.store(place, _to_e4m3(first), is_in)
        tl.store(place + D // 2, _to_e4m3(second), is_in)
    else:
        largest = 127.0 if KIND == "int8" else 7.0
        both = tl.maximum(tl.abs(first), tl.abs(second))
        amplitude = tl.maximum(tl.max(both, 1, keep_dims=True), 1e-20)
        factor = largest / amplitude
        first = tl.minimum(tl.maximum(_round(first * factor), -largest), largest)
        second = tl.minimum(tl.maximum(_round(second * factor), -largest), largest)
        if KIND == "int8":
            place = kept + row * D + columns
            tl.store(place, first.to(tl.int8), is_in)
            tl.store(place + D // 2, second.to(tl.int8), is_in)
        else:
            byte = (first + 8.0).to(tl.int32) | ((second + 8.0).to(tl.int32) << 4)
            tl.store(kept + row * (D // 2) + columns, byte.to(tl.uint8), is_in)
        tl.store(scales + row, amplitude / largest, is_kept)


@triton.jit(do_not_specialize=["num_slots"], do_not_specialize_on_alignment=["k_scale", "v_scale"])
def _write_kv_kernel(
    k,  # [T, K, D]
    v,  # [T, K, D]
    slots,  # [at most T] int64
    k_cache,  # [P, B, K, D], or a kind's own form of it
    v_cache,
    k_scale,  # [P, B, K] float32
    v_scale,
    k_stride,
    v_stride,
    num_slots,
    K: tl.constexpr,
    D: tl.constexpr,
    KIND: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token, token < num_slots, -1)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    columns = tl.arange(0, HALF)[None, :]
    row = slot * K + heads
    is_kept = (heads < K) & (row >= 0)
    is_in = is_kept & (columns < D // 2)
    keys = k + token * k_stride + heads * D + columns
    first = tl.load(keys, is_in, 0.0).to(tl.float32)
    second = tl.load(keys + D // 2, is_in, 0.0).to(tl.float32)
    keep_heads(first, second, k_cache, k_scale, row, is_kept, columns, D, KIND)
    values = v + token * v_stride + heads * D + columns
    first = tl.load(values, is_in, 0.0).to(tl.float32)
    second = tl.load(values + D // 2, is_in, 0.0).to(tl.float32)
    keep_heads(first, second, v_cache, v_scale, row, is_kept, columns, D, KIND)


def write_kv(k: Tensor, v: Tensor, layer: KvLayer, slots: Tensor) -> None:
    """As portable.kv_write.write_kv; a slot of -1 is a token that has none.

    Shapes: k, v [T, K, D], tokens apart by any stride.
    """
    num_rows, num_heads, head_dim = k.shape
    if num_rows == 0:
        return
    launch = TABLE.choose(architecture_of(k.device), head_dim=head_dim)
    _write_kv_kernel[(num_rows, triton.cdiv(num_heads, launch.tiles["HEADS"]))](
        k,
        v,
        slots,
        *stored_parts(layer),
        k.stride(0),
        v.stride(0),
        slots.shape[0],
        K=num_heads,
        D=head_dim,
        KIND=layer.kind,
        HALF=triton.next_power_of_2(head_dim // 2),
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )


def stored_parts(layer: KvLayer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys, values and their scales, as kernels take them: float8 as its bits."""
    k, v, k_scale, v_scale = layer.k, layer.v, layer.k_scale, layer.v_scale
    if layer.kind == "fp8":
        k, v = k.view(torch.uint8), v.view(torch.uint8)
    return k, v, k if k_scale is None else k_scale, v if v_scale is None else v_scale


def stored_types(dtype: Dtype, kind: KvKind) -> dict[str, str]:
    """Triton's names of the types of a layer's parts, as stored_parts gives them."""
    stored = {"plain": f"*{dtype}", "fp8": "*u8", "int8": "*i8", "int4": "*u8"}[kind]
    scales = "*fp32" if kind in ("int8", "int4") else stored
    return {"k_cache": stored, "v_cache": stored, "k_scale": scales, "v_scale": scales}


def stored_bytes(shape: ModelShape) -> float:
    """What a token's keys and values take in a layer's cache."""
    numbers = 2 * shape.num_kv_heads * shape.head_dim
    if shape.kv_kind == "plain":
        return numbers * shape.itemsize
    scales = 0 if shape.kv_kind == "fp8" else 8 * shape.num_kv_heads
    return numbers * (0.5 if shape.kv_kind == "int4" else 1) + scales


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One, for models that rotate nothing; for others rotate_and_write writes."""
    if shape.rotary_dim:
        return
    launch = TABLE.choose(shape.architecture, head_dim=shape.head_dim)
    stored = stored_types(shape.dtype, shape.kv_kind)
    num_rows, numbers = 8_192, 2 * shape.num_kv_heads * shape.head_dim
    yield Variant(
        f"kv_write/d{shape.head_dim}-k{shape.num_kv_heads}-{shape.dtype}-{shape.kv_kind}",
        _write_kv_kernel,
        {
            **dict.fromkeys(("k", "v"), f"*{shape.dtype}"),
            "slots": "*i64",
            **stored,
            **dict.fromkeys(("k_stride", "v_stride", "num_slots"), "i32"),
        },
        {
            "K": shape.num_kv_heads,
            "D": shape.head_dim,
            "KIND": shape.kv_kind,
            "HALF": triton.next_power_of_2(shape.head_dim // 2),
            **launch.tiles,
        },
        launch,
        aligned=frozenset(("k", "v", "slots", "k_cache", "v_cache"))
        | divisible(**dict.fromkeys(("k_stride", "v_stride"), shape.qkv_size)),
        sized_for=f"T={num_rows}",
        bytes_moved=int(num_rows * (stored_bytes(shape) + numbers * 2)),
    )
