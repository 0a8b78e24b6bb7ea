"""ggml's K-quants: blocks of 256 numbers with scales that are quantised themselves.

Each function takes raw rows [R, bytes] uint8 and returns float32 of all their numbers; products are
made in the order of ggml's own code, so that they round alike.
Source: ggml-quants.c and ggml-common.h of ggml.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NIBBLES = torch.tensor([0, 4], dtype=torch.uint8).view(1, 1, 2, 1)
_PAIRS = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
_BITS = torch.arange(8, dtype=torch.uint8).view(1, 1, 8, 1)


def unpack_q2_k(rows: Tensor) -> Tensor:
    """16 bytes of scales (low nibble) and minima (high), 64 bytes of pairs, two float16."""
    blocks = rows.reshape(-1, 84)
    scales, pairs = blocks[:, :16], blocks[:, 16:80]
    numbers = _spread(pairs, 32, _PAIRS, 3).view(-1, 16, 16).float()
    scale = halves(blocks, 80) * (scales & 15)
    minimum = halves(blocks, 82) * (scales >> 4)
    return numbers.mul_(scale.unsqueeze(2)).sub_(minimum.unsqueeze(2))


def unpack_q3_k(rows: Tensor) -> Tensor:
    """32 bytes of high bits, 64 of pairs, 12 of scales in six bits, a float16."""
    blocks = rows.reshape(-1, 110)
    high, pairs, scales = blocks[:, :32], blocks[:, 32:96], blocks[:, 96:108]
    low_scales = _spread(scales[:, :8], 8, _NIBBLES, 15).view(-1, 16)
    high_scales = _spread(scales[:, 8:], 4, _PAIRS, 3).view(-1, 16)
    scale = halves(blocks, 108) * ((low_scales | (high_scales << 4)).float() - 32)
    numbers = _spread(pairs, 32, _PAIRS, 3).view(-1, 16, 16).float()
    # A high bit that is not set takes four off.
    is_low = _spread(high, 32, _BITS, 1).view(-1, 16, 16) ^ 1
    return numbers.sub_(is_low, alpha=4).mul_(scale.unsqueeze(2))


def unpack_q4_k(rows: Tensor) -> Tensor:
    """Two float16, 12 bytes of scales and minima in six bits, 128 bytes of nibbles."""
    blocks = rows.reshape(-1, 144)
    numbers = _spread(blocks[:, 16:], 32, _NIBBLES, 15).view(-1, 8, 32).float()
    return _scale_down(numbers, blocks)


def unpack_q5_k(rows: Tensor) -> Tensor:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles."""
    blocks = rows.reshape(-1, 176)
    numbers = _spread(blocks[:, 48:], 32, _NIBBLES, 15).view(-1, 8, 32).float()
    fifth = _spread(blocks[:, 16:48], 32, _BITS, 1).view(-1, 8, 32)
    return _scale_down(numbers.add_(fifth, alpha=16), blocks)


def unpack_q6_k(rows: Tensor) -> Tensor:
    """128 bytes of low nibbles, 64 of high pairs, 16 signed scales, a float16."""
    blocks = rows.reshape(-1, 210)
    low = _spread(blocks[:, :128], 64, _NIBBLES, 15).view(-1, 256)
    high = _spread(blocks[:, 128:192], 32, _PAIRS, 3).view(-1, 256)
    scale = halves(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    numbers = (low | (high << 4)).float().sub_(32).view(-1, 16, 16)
    return numbers.mul_(scale.unsqueeze(2))


def _spread(packed: Tensor, width: int, shifts: Tensor, mask: int) -> Tensor:
    """Each run of `width` bytes once for each shift. Shapes: packed [N, n * width] uint8."""
    return (packed.reshape(packed.shape[0], -1, 1, width) >> shifts) & mask


def halves(blocks: Tensor, start: int) -> Tensor:
    """Each block's float16 at a byte offset, as float32 [N, 1]."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _scale_down(numbers: Tensor, blocks: Tensor) -> Tensor:
    """scale * number - minimum for blocks that begin as Q4_K's. Shapes: numbers [N, 8, 32]."""
    first, second, third = blocks[:, 4:16].view(-1, 3, 4).unbind(1)
    scales = torch.cat((first & 63, (third & 15) | ((first >> 2) & 48)), 1)
    minima = torch.cat((second & 63, (third >> 4) | ((second >> 2) & 48)), 1)
    scale, minimum = halves(blocks, 0) * scales, halves(blocks, 2) * minima
    return numbers.mul_(scale.unsqueeze(2)).sub_(minimum.unsqueeze(2))
