"""One compilation of a kernel: what a launcher asks of Triton, written down.

From the same values a launcher launches, warm-up compiles, and the tests compile ahead of time
without a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Launch:
    """How a program is laid out: constants of the kernel (tile sizes, splits) and its schedule.

    shared_bytes: the shared memory that a program of it takes at most; tests hold every compilation
    to it, and a launch table passes over what a device has too little for. Each architecture has
    the default's 48 KiB.
    """

    tiles: Mapping[str, int]
    num_warps: int = 4
    num_stages: int = 2
    shared_bytes: int = 48 * 1024


@dataclass(frozen=True)
class Variant:
    """A kernel with all that is fixed when it is compiled.

    name: for reports, as `attention_decode/d128-g4-bf16-int8`. kernel: the @triton.jit function.
    signature: each argument that is no constant, to Triton's name of its type ("*bf16", "i32").
    constants: each tl.constexpr, the launch's tiles among them. aligned: arguments that are
    divisible by 16, as every buffer's address is. uses_tensor_cores: a matrix instruction is due.
    bytes_moved, flops: of one launch at the size in `sized_for`, for the roofline; 0 if not given.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    launch: Launch
    aligned: frozenset[str] = field(default_factory=frozenset)
    uses_tensor_cores: bool = False
    sized_for: str = ""
    bytes_moved: int = 0
    flops: int = 0


def divisible(**numbers: int) -> frozenset[str]:
    """Those that divide by 16, by which Triton tells two compilations apart."""
    return frozenset(name for name, number in numbers.items() if number % 16 == 0)
