"""What a part of the benchmark is told: the device, the sizes, and what earlier parts measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sizes:
    """How much is measured; small ones only show that the script runs.

    kv_bytes: of one layer's cache in decode attention. gemm: of a square product. prompt: tokens
    of the prefill. batches: of decoding, with num_tokens each.
    """

    copied_bytes: int
    kv_bytes: int
    gemm: int
    prompt: int
    batches: tuple[int, ...]
    num_tokens: int
    num_weights: int
    repeats: int


FULL = Sizes(4 * 2**30, 2**30, 8192, 8192, (1, 8, 64), 128, 8, 20)
TINY = Sizes(2**16, 2**12, 64, 6, (1, 2), 3, 1, 1)


@dataclass(frozen=True)
class Run:
    """known: the values of earlier parts' figures by name."""

    is_tiny: bool
    known: Mapping[str, float]

    @property
    def device(self) -> torch.device:
        """A GPU; for a tiny run the CPU, where Triton interprets."""
        return torch.device("cpu" if self.is_tiny else "cuda")

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16, which the interpreter cannot compute with."""
        return torch.float32 if self.is_tiny else torch.bfloat16

    @property
    def sizes(self) -> Sizes:
        """How much to measure."""
        return TINY if self.is_tiny else FULL
