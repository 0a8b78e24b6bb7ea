"""Keys and values as a quantised cache keeps them, and back; what the GPU's kernels fuse."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_kernels.kv_layer import KvLayer

LARGEST = {"fp8": 448.0, "int8": 127.0, "int4": 7.0}
"""The largest number that each kind keeps."""
LEAST_AMPLITUDE = 1e-20
"""What a head of zeros is scaled by, so that nothing is divided by zero."""


def quantise_heads(x: Tensor, kind: str) -> tuple[Tensor, Tensor | None]:
    """Each head of each token by a scale of its own, rounded to the nearest, halves to even.

    Shapes: x [..., D], finite; out: stored [..., D] (int4: [..., D / 2]), scales [...] float32,
    or None for fp8.
    """
    wide, largest = x.float(), LARGEST[kind]
    if kind == "fp8":
        return wide.clamp(-largest, largest).to(torch.float8_e4m3fn), None
    amplitude = wide.abs().amax(-1).clamp_min_(LEAST_AMPLITUDE)
    numbers = (wide * (largest / amplitude).unsqueeze(-1)).round_().clamp_(-largest, largest)
    scale = amplitude / largest
    if kind == "int8":
        return numbers.to(torch.int8), scale
    low, high = (numbers + 8).to(torch.uint8).chunk(2, -1)
    return low | high << 4, scale


def dequantise_heads(stored: Tensor, scale: Tensor | None, kind: str, dtype: torch.dtype) -> Tensor:
    """What quantise_heads has kept. Shapes: as there; out [..., D]."""
    if kind == "int4":
        stored = torch.cat((stored & 15, stored >> 4), -1).to(torch.int8) - 8
    if scale is None:
        return stored.to(dtype)
    return (stored.float() * scale.unsqueeze(-1)).to(dtype)


def gather_blocks(layer: KvLayer, blocks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The keys and the values of some blocks, in the queries' dtype.

    Shapes: blocks [n]; out each [n, B, K, D].
    """
    keys, values = (torch.index_select(each, 0, blocks) for each in (layer.k, layer.v))
    if layer.kind == "plain":
        return keys.to(dtype), values.to(dtype)
    scales = (
        None if scale is None else torch.index_select(scale, 0, blocks)
        for scale in (layer.k_scale, layer.v_scale)
    )
    k_scale, v_scale = scales
    return (
        dequantise_heads(keys, k_scale, layer.kind, dtype),
        dequantise_heads(values, v_scale, layer.kind, dtype),
    )
