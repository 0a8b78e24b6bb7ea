"""ggml's K-quants: blocks of 256 numbers with scales that are quantised themselves.

Each function takes raw rows [R, bytes] uint8 and gives the codes of all their numbers; products of
scales are made in the order of ggml's own code, so that they round alike.
Source: ggml-quants.c and ggml-common.h of ggml.
"""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_runtime.loading.ggml_codes import CodeGroups, halves

_NIBBLES = torch.tensor([0, 4], dtype=torch.uint8).view(1, 1, 2, 1)
_PAIRS = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
_BITS = torch.arange(8, dtype=torch.uint8).view(1, 1, 8, 1)


def read_q2_k(rows: Tensor) -> CodeGroups:
    """16 bytes of scales (low nibble) and minima (high), 64 bytes of pairs, two float16."""
    blocks = rows.reshape(-1, 84)
    scales, pairs = blocks[:, :16], blocks[:, 16:80]
    scale, minimum = halves(blocks, 80) * (scales & 15), halves(blocks, 82) * (scales >> 4)
    return _groups(_spread(pairs, 32, _PAIRS, 3), scale, 2, minimum)


def read_q3_k(rows: Tensor) -> CodeGroups:
    """32 bytes of high bits, 64 of pairs, 12 of scales in six bits, a float16."""
    blocks = rows.reshape(-1, 110)
    high, pairs, scales = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    low_scales = _spread(scales[:, :8], 8, _NIBBLES, 15).view(-1, 16)
    high_scales = _spread(scales[:, 8:], 4, _PAIRS, 3).view(-1, 16)
    scale = halves(blocks, 108) * ((low_scales | (high_scales << 4)).float() - 32)
    # A high bit that is not set takes four off, and four is the middle of three bits.
    codes = _spread(pairs, 32, _PAIRS, 3).view(-1, 256) | (
        _spread(high, 32, _BITS, 1).view(-1, 256) << 2
    )
    return _groups(codes, scale, 3)


def read_q4_k(rows: Tensor) -> CodeGroups:
    """Two float16, 12 bytes of scales and minima in six bits, 128 bytes of nibbles."""
    blocks = rows.reshape(-1, 144)
    return _groups(_spread(blocks[:, 16:], 32, _NIBBLES, 15), *_scales(blocks, 4))


def read_q5_k(rows: Tensor) -> CodeGroups:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles."""
    blocks = rows.reshape(-1, 176)
    codes = _spread(blocks[:, 48:], 32, _NIBBLES, 15).view(-1, 8, 32)
    fifth = _spread(blocks[:, 16:48], 32, _BITS, 1).view(-1, 8, 32)
    return _groups(codes | (fifth << 4), *_scales(blocks, 5))


def read_q6_k(rows: Tensor) -> CodeGroups:
    """128 bytes of low nibbles, 64 of high pairs, 16 signed scales, a float16."""
    blocks = rows.reshape(-1, 210)
    low = _spread(blocks[:, :128], 64, _NIBBLES, 15).view(-1, 256)
    high = _spread(blocks[:, 128:192], 32, _PAIRS, 3).view(-1, 256)
    scale = halves(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    return _groups(low | (high << 4), scale, 6)


def _groups(codes: Tensor, scale: Tensor, bits: int, minimum: Tensor | None = None) -> CodeGroups:
    """Shapes: scale, minimum [N, groups of a block]; a minimum is taken off, as ggml has it."""
    return CodeGroups(
        codes.reshape(scale.numel(), -1),
        scale.reshape(-1, 1),
        bits,
        None if minimum is None else minimum.reshape(-1, 1).neg(),
    )


def _spread(packed: Tensor, width: int, shifts: Tensor, mask: int) -> Tensor:
    """Each run of `width` bytes once for each shift. Shapes: packed [N, n * width] uint8."""
    return (packed.reshape(packed.shape[0], -1, 1, width) >> shifts) & mask


def _scales(blocks: Tensor, bits: int) -> tuple[Tensor, int, Tensor]:
    """Scales, bits and minima, as _groups takes them, of blocks that begin as Q4_K's."""
    first, second, third = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat((first & 63, (third & 15) | ((first >> 2) & 48)), 1)
    minima = torch.cat((second & 63, (third >> 4) | ((second >> 2) & 48)), 1)
    return halves(blocks, 0) * scales, bits, halves(blocks, 2) * minima
