"""Norms of heads, rotation and cache write in one pass over queries, keys and values.

Each head of each token is computed by itself, in one order: batch-invariant.
"""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from torch import Tensor

from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.kv_write import keep_heads, stored_bytes, stored_parts, stored_types
from forebay_kernels.gpu.launch_tables.rotate_and_write import TABLE
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant, divisible
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.rotation import HeadNorms, Rotation


@triton.jit
def _turn_part(
    own,  # [HEADS, HALF] float32: these columns
    columns,  # [1, HALF]
    head,  # [HEADS, 1]: where each head begins
    norm,  # [HEADS, 1]: where its norm's weights begin
    scale,  # [HEADS, 1] float32: by which the norm multiplies
    cos,  # [R], of the position
    sin,
    is_turned,  # [HEADS, 1]
    R: tl.constexpr,
    HAS_NORMS: tl.constexpr,
):
    """Turn what of these columns lies within the first R; each number's other is read again."""
    other = tl.where(columns < R // 2, columns + R // 2, columns - R // 2)
    is_in = is_turned & (columns < R)
    turning = tl.load(head + other, is_in, 0.0).to(tl.float32)
    if HAS_NORMS:
        turning *= scale * tl.load(norm + other, is_in, 0.0).to(tl.float32)
    by_cos = tl.load(cos + columns, columns < R, 1.0).to(tl.float32)
    by_sin = tl.load(sin + columns, columns < R, 0.0).to(tl.float32)
    return tl.where(is_in, own * by_cos + turning * by_sin, own)


@triton.jit(do_not_specialize=["num_slots"], do_not_specialize_on_alignment=["k_scale", "v_scale"])
def _rotate_and_write_kernel(
    qkv,  # [T, (H + 2K) * D]
    norms,  # [H + K, D]
    cos,  # [positions, R]
    sin,  # [positions, R], of the first half negative
    positions,  # [T] int64
    slots,  # [at most T] int64
    q,  # [T, H, D]
    k_cache,  # [P, B, K, D], or a kind's own form of it
    v_cache,
    k_scale,  # [P, B, K] float32
    v_scale,
    qkv_stride,
    num_slots,
    eps,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
    HAS_NORMS: tl.constexpr,
    KIND: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    first_head = tl.program_id(1) * HEADS
    heads = first_head + tl.arange(0, HEADS)[:, None]
    columns = tl.arange(0, HALF)[None, :]
    is_half = columns < D // 2
    is_in = (heads < H + 2 * K) & is_half
    is_turned = heads < H + K
    head = qkv + token * qkv_stride + heads * D
    first = tl.load(head + columns, is_in, 0.0).to(tl.float32)
    second = tl.load(head + D // 2 + columns, is_in, 0.0).to(tl.float32)

    norm = norms + heads * D
    scale = tl.full([HEADS, 1], 1.0, tl.float32)
    if HAS_NORMS:
        squares = tl.sum(first * first + second * second, 1, keep_dims=True)
        scale = tl.rsqrt(squares / D + eps)
        is_normed = is_turned & is_half
        first_weight = tl.load(norm + columns, is_normed, 0.0).to(tl.float32)
        second_weight = tl.load(norm + D // 2 + columns, is_normed, 0.0).to(tl.float32)
        first = tl.where(is_turned, first * scale * first_weight, first)
        second = tl.where(is_turned, second * scale * second_weight, second)

    position = tl.load(positions + token)
    cos += position * R
    sin += position * R
    if R == D:
        by_cos = tl.load(cos + columns, is_half, 0.0).to(tl.float32)
        by_sin = tl.load(sin + D // 2 + columns, is_half, 0.0).to(tl.float32)
        turned = first * by_cos - second * by_sin
        second = tl.where(is_turned, second * by_cos + first * by_sin, second)
        first = tl.where(is_turned, turned, first)
    else:
        first = _turn_part(
            first, columns, head, norm, scale, cos, sin, is_turned & is_half, R, HAS_NORMS
        )
        second = _turn_part(
            second, columns + D // 2, head, norm, scale, cos, sin, is_turned & is_half, R, HAS_NORMS
        )

    # Rounded as the model computes, before what is cached is rounded again.
    dtype: tl.constexpr = q.dtype.element_ty
    queries = q + (token * H + heads) * D + columns
    is_query = (heads < H) & is_half
    tl.store(queries, first.to(dtype), is_query)
    tl.store(queries + D // 2, second.to(dtype), is_query)
    if first_head + HEADS > H:
        first, second = first.to(dtype).to(tl.float32), second.to(dtype).to(tl.float32)
        slot = tl.load(slots + token, token < num_slots, -1)
        row = slot * K + heads - H
        is_key = (heads >= H) & is_turned & (row >= 0)
        keep_heads(first, second, k_cache, k_scale, row, is_key, columns, D, KIND)
        is_value = (heads >= H + K) & (heads < H + 2 * K) & (row >= K)
        keep_heads(first, second, v_cache, v_scale, row - K, is_value, columns, D, KIND)


def rotate_and_write(
    qkv: Tensor, norms: HeadNorms | None, rotation: Rotation, layer: KvLayer, slots: Tensor
) -> Tensor:
    """As portable.kv_write.rotate_and_write; a slot of -1 is a token that has none."""
    num_rows, head_dim, num_kv_heads = qkv.shape[0], layer.head_dim, layer.num_kv_heads
    num_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
    q = qkv.new_empty(num_rows, num_heads, head_dim)
    if num_rows == 0:
        return q
    launch = TABLE.choose(architecture_of(qkv.device), head_dim=head_dim)
    num_tiles = triton.cdiv(num_heads + 2 * num_kv_heads, launch.tiles["HEADS"])
    _rotate_and_write_kernel[(num_rows, num_tiles)](
        qkv,
        qkv if norms is None else norms.weight,
        rotation.cos,
        rotation.sin,
        rotation.positions,
        slots,
        q,
        *stored_parts(layer),
        qkv.stride(0),
        slots.shape[0],
        0.0 if norms is None else norms.eps,
        H=num_heads,
        K=num_kv_heads,
        D=head_dim,
        R=rotation.cos.shape[-1],
        HAS_NORMS=norms is not None,
        KIND=layer.kind,
        HALF=triton.next_power_of_2(head_dim // 2),
        **launch.tiles,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
    )
    return q


def variants(shape: ModelShape) -> Iterator[Variant]:
    """One a model and kind of cache."""
    if not shape.rotary_dim:
        return
    launch = TABLE.choose(shape.architecture, head_dim=shape.head_dim)
    model = ("qkv", "norms", "cos", "sin", "q")
    types = dict.fromkeys(model, f"*{shape.dtype}")
    if shape.has_qk_norm:
        types["norms"] = f"*{shape.norm_dtype}"
    num_rows = 8_192
    moved = (shape.qkv_size + shape.num_heads * shape.head_dim) * shape.itemsize
    norms = "-normed" if shape.has_qk_norm else ""
    sizes = f"d{shape.head_dim}-r{shape.rotary_dim}-h{shape.num_heads}-k{shape.num_kv_heads}{norms}"
    yield Variant(
        f"rotate_and_write/{sizes}-{shape.dtype}-{shape.kv_kind}",
        _rotate_and_write_kernel,
        {
            **types,
            **dict.fromkeys(("positions", "slots"), "*i64"),
            **stored_types(shape.dtype, shape.kv_kind),
            **dict.fromkeys(("qkv_stride", "num_slots"), "i32"),
            "eps": "fp32",
        },
        {
            "H": shape.num_heads,
            "K": shape.num_kv_heads,
            "D": shape.head_dim,
            "R": shape.rotary_dim,
            "HAS_NORMS": shape.has_qk_norm,
            "KIND": shape.kv_kind,
            "HALF": triton.next_power_of_2(shape.head_dim // 2),
            **launch.tiles,
        },
        launch,
        aligned=frozenset((*model, "positions", "slots", "k_cache", "v_cache"))
        | divisible(qkv_stride=shape.qkv_size),
        sized_for=f"T={num_rows}",
        bytes_moved=int(num_rows * (moved + stored_bytes(shape))),
    )
