"""Which form of the operations runs on a device.

Triton's kernels run on CUDA devices, and under Triton's interpreter on a CPU, where
FOREBAY_KERNELS=triton asks for it: slow, and exact enough to test with.
"""

from __future__ import annotations

import os
from functools import cache

import torch

INTERPRETED = "triton"
"""The value of FOREBAY_KERNELS that makes a CPU interpret the GPU's kernels."""


@cache
def uses_triton(device: torch.device) -> bool:
    """Whether a device runs Triton's kernels.

    Raises: ValueError if a CPU is asked to, and Triton was not told to interpret.
    """
    if device.type == "cuda":
        return True
    if os.environ.get("FOREBAY_KERNELS", "") != INTERPRETED:
        return False
    if not is_interpreted():
        raise ValueError(
            "FOREBAY_KERNELS=triton on a CPU needs TRITON_INTERPRET=1 from the process's start on"
        )
    return True


def is_interpreted() -> bool:
    """Whether Triton interprets its kernels; it reads that when a kernel is defined."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"
