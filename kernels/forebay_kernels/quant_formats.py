"""The bit layouts of AWQ's, GPTQ's and compressed-tensors' checkpoints, as ours without rounding.

Whoever reads a checkpoint knows which layout it has; here are only bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_kernels.quant_matrix import QuantMatrix, build_matrix

_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""In which of a 32-bit word's eight places AWQ keeps each of eight neighbouring outputs."""
_AWQ_BITS = 4


def from_awq(
    qweight: Tensor, qzeros: Tensor | None, scales: Tensor, group: int | None
) -> QuantMatrix:
    """AWQ's layout for its GEMM kernel, four bits.

    Shapes: qweight [K, N / 8] int32; qzeros [G, N / 8] int32, None: all 8; scales [G, N].
    Raises: ValueError if the group size or K is not what our packing can hold.
    Source: Lin et al. 2024 (AWQ) §4; the layout is that of its published checkpoints.
    """
    codes = _spread(qweight, _AWQ_BITS)[..., _AWQ_PLACES].flatten(1)
    zeros = None
    if qzeros is not None:
        zeros = _spread(qzeros, _AWQ_BITS)[..., _AWQ_PLACES].flatten(1)
    return build_matrix(codes.T, scales, zeros, _AWQ_BITS, group)


@dataclass(frozen=True)
class PackedLayout:
    """What a checkpoint's configuration says of its tensors.

    bits: 4 or 8. group_size: inputs that share a scale; None: all of them.
    """

    bits: int
    group_size: int | None


@dataclass(frozen=True)
class GptqLayout(PackedLayout):
    """zero_offset: what the stored zeros lack: 1 in the first format, 0 in `gptq_v2`."""

    zero_offset: int = 1


def from_gptq(
    qweight: Tensor,
    qzeros: Tensor | None,
    scales: Tensor,
    g_idx: Tensor | None,
    layout: GptqLayout,
) -> QuantMatrix:
    """GPTQ's layout, four or eight bits.

    Shapes: qweight [K * bits / 32, N] int32; qzeros [G, N * bits / 32] int32, None: all the middle
    code; scales [G, N]; g_idx [K], each input's group, None: in order.
    Raises: ValueError if the group size or K is not what our packing can hold, or if g_idx does not
    give every group as many inputs.
    Source: Frantar et al. 2023 (GPTQ) §3; the layout is that of its published checkpoints.
    """
    bits, group = layout.bits, layout.group_size
    num_outputs = qweight.shape[1]
    codes = _spread(qweight.T, bits).reshape(num_outputs, -1)
    zeros = None
    if qzeros is not None:
        # Modulo: the packer stored a zero of 0 as -1.
        zeros = (_spread(qzeros, bits).flatten(1) + layout.zero_offset) & (2**bits - 1)
    order = None if g_idx is None else _order(g_idx, group, codes.shape[1])
    if order is not None:
        codes = codes[:, order]
    return build_matrix(codes, scales, zeros, bits, group, order)


def from_packed(
    weight_packed: Tensor,
    zero_point: Tensor | None,
    scale: Tensor,
    g_idx: Tensor | None,
    layout: PackedLayout,
) -> QuantMatrix:
    """The layout that compressed-tensors calls pack-quantized, four or eight bits.

    Shapes: weight_packed [N, K * bits / 32] int32; zero_point [N * bits / 32, G] int32, its last
    word perhaps not full, None: all the middle code; scale [N, G]; g_idx as in from_gptq.
    Raises: ValueError as from_gptq.
    Source: pack_to_int32 of compressed-tensors, for the order of codes in a word.
    """
    bits, group = layout.bits, layout.group_size
    codes = _spread(weight_packed, bits).flatten(1)
    zeros = None
    if zero_point is not None:
        zeros = _spread(zero_point.T, bits).flatten(1)[:, : codes.shape[0]]
    order = None if g_idx is None else _order(g_idx, group, codes.shape[1])
    if order is not None:
        codes = codes[:, order]
    return build_matrix(codes, scale.T, zeros, bits, group, order)


def from_signed(weight: Tensor, scale: Tensor, group: int | None) -> QuantMatrix:
    """A byte a weight, with a sign.

    Shapes: weight [N, K] int8; scale [N, G].
    Raises: ValueError if the group size or K is not what our packing can hold.
    """
    return build_matrix(weight.view(torch.uint8) ^ 128, scale.T, None, 8, group)


def _spread(words: Tensor, bits: int) -> Tensor:
    """The codes of each 32-bit word from its lowest bits up: [..., 32 / bits] uint8."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    return (words.unsqueeze(-1) >> shifts).bitwise_and_(2**bits - 1).to(torch.uint8)


def _order(g_idx: Tensor, group: int | None, num_inputs: int) -> Tensor | None:
    """Inputs by group, those of one group in their own order; None if that is how they come."""
    if group is None:
        return None
    places = g_idx.long()
    order = places.argsort(stable=True)
    expected = torch.arange(num_inputs, device=order.device)
    if not torch.equal(places[order], expected // group):
        raise ValueError(f"g_idx does not put {group} inputs into each group of a GPTQ matrix")
    return None if torch.equal(order, expected) else order
