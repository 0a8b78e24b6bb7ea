"""The cache write, and the rotation before it, by torch operations alone."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.portable import elementwise
from forebay_kernels.portable.batch_invariant import by_rows
from forebay_kernels.portable.quantised_kv import quantise_heads
from forebay_kernels.rotation import HeadNorms, Rotation

_FINITE = (0.0, 65504.0, -65504.0)
"""What NaN, inf and -inf become: of the largest that every dtype can hold, products stay finite."""

_rms_norm_heads = by_rows(elementwise.rms_norm_heads)
_rotate = by_rows(elementwise.rotate, num_split=3)


def write_kv(k: Tensor, v: Tensor, layer: KvLayer, slots: Tensor) -> None:
    """Put each token's key and value into its slot; rows past the slots are padding.

    Only finite numbers: a slot is read, with a weight of zero, by whoever shares a call with its
    owner or gets its block next, and zero times NaN is NaN.
    Shapes: k, v [T, K, D]; slots [at most T] int64.
    """
    num_tokens = slots.shape[0]
    for x, stored, scale in ((k, layer.k, layer.k_scale), (v, layer.v, layer.v_scale)):
        finite = torch.nan_to_num(x[:num_tokens], *_FINITE)
        if layer.kind == "plain":
            stored.flatten(0, 1).index_copy_(0, slots, finite.to(stored.dtype))
            continue
        quantised, scales = quantise_heads(finite, layer.kind)
        # As bytes: torch copies no float8 by an index.
        stored.view(torch.uint8).flatten(0, 1).index_copy_(0, slots, quantised.view(torch.uint8))
        if scale is not None and scales is not None:
            scale.flatten(0, 1).index_copy_(0, slots, scales)


def rotate_and_write(
    qkv: Tensor, norms: HeadNorms | None, rotation: Rotation, layer: KvLayer, slots: Tensor
) -> Tensor:
    """Norm the query and key heads where the model does, turn them, and write keys and values.

    Shapes: qkv [T, (H + 2K) * D]; slots as in write_kv; out: the queries [T, H, D].
    """
    heads = qkv.view(qkv.shape[0], -1, layer.head_dim)
    num_turned = heads.shape[1] - layer.num_kv_heads
    num_queries = num_turned - layer.num_kv_heads
    turned = heads[:, :num_turned]
    if norms is not None:
        turned = _rms_norm_heads(turned, norms.weight, norms.eps)
    turned = _rotate(turned, *rotation.at_positions)
    write_kv(turned[:, num_queries:], heads[:, num_turned:], layer, slots)
    return turned[:, :num_queries]
