"""ggml's blocks of 32 numbers, as codes with their scales: nothing is rounded.

Source: ggml-quants.c and ggml-common.h of ggml, for the layout of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_ELEMENTS = 32


@dataclass(frozen=True)
class CodeGroups:
    """Groups of neighbouring numbers: each is (code - zero) * scale, or code * scale + minimum.

    codes: [n, size] uint8, below 2 ** bits. scale: [n, 1] float32. zero: of all codes; unless there
    is a minimum [n, 1] float32.
    """

    codes: Tensor
    scale: Tensor
    bits: int
    minimum: Tensor | None = None

    @property
    def size(self) -> int:
        """Numbers in a group."""
        return self.codes.shape[1]

    def numbers(self) -> Tensor:
        """All of them, float32 [n, size], with the roundings of ggml's own code."""
        numbers = self.codes.float()
        if self.minimum is not None:
            return numbers.mul_(self.scale).add_(self.minimum)
        return numbers.sub_(1 << (self.bits - 1)).mul_(self.scale)


Reader = Callable[[Tensor], CodeGroups]


def read_q8_0(rows: Tensor) -> CodeGroups:
    """Blocks of a float16 scale and 32 signed bytes."""
    blocks = rows.reshape(-1, 2 + BLOCK_ELEMENTS)
    return CodeGroups(blocks[:, 2:] ^ 128, halves(blocks, 0), 8)


def read_q4_0(rows: Tensor) -> CodeGroups:
    """Blocks of a float16 scale and 16 bytes of nibbles about 8."""
    blocks = rows.reshape(-1, 2 + BLOCK_ELEMENTS // 2)
    return CodeGroups(_nibbles(blocks[:, 2:]), halves(blocks, 0), 4)


def read_q4_1(rows: Tensor) -> CodeGroups:
    """Blocks of a float16 scale, a float16 minimum and 16 bytes of nibbles."""
    blocks = rows.reshape(-1, 4 + BLOCK_ELEMENTS // 2)
    return CodeGroups(_nibbles(blocks[:, 4:]), halves(blocks, 0), 4, halves(blocks, 2))


def read_q5_0(rows: Tensor) -> CodeGroups:
    """Blocks of a float16 scale, 32 high bits and 16 bytes of nibbles: five bits about 16."""
    blocks = rows.reshape(-1, 6 + BLOCK_ELEMENTS // 2)
    return CodeGroups(_five_bits(blocks[:, 2:6], blocks[:, 6:]), halves(blocks, 0), 5)


def read_q5_1(rows: Tensor) -> CodeGroups:
    """Blocks of a float16 scale, a float16 minimum, 32 high bits and 16 bytes of nibbles."""
    blocks = rows.reshape(-1, 8 + BLOCK_ELEMENTS // 2)
    codes = _five_bits(blocks[:, 4:8], blocks[:, 8:])
    return CodeGroups(codes, halves(blocks, 0), 5, halves(blocks, 2))


_IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_IQ4_NL_CODES = torch.tensor([value + 128 for value in _IQ4_NL_VALUES], dtype=torch.uint8)


def read_iq4_nl(rows: Tensor) -> CodeGroups:
    """Blocks of a float16 scale and 16 bytes, each nibble one of 16 values of eight bits."""
    blocks = rows.reshape(-1, 2 + BLOCK_ELEMENTS // 2)
    return CodeGroups(_IQ4_NL_CODES[_nibbles(blocks[:, 2:]).int()], halves(blocks, 0), 8)


def halves(blocks: Tensor, start: int) -> Tensor:
    """Each block's float16 at a byte offset, as float32 [N, 1]."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor) -> Tensor:
    """The low nibbles, then the high ones. Shapes: packed [N, 16]; out [N, 32] uint8."""
    return torch.cat((packed & 15, packed >> 4), 1)


_BITS = torch.arange(8, dtype=torch.uint8)


def _five_bits(high: Tensor, packed: Tensor) -> Tensor:
    """Nibbles with a fifth bit each. Shapes: high [N, 4]; packed [N, 16]; out [N, 32] uint8."""
    fifth = (high.unsqueeze(-1) >> _BITS) & 1
    return _nibbles(packed).add_(fifth.flatten(1), alpha=16)
