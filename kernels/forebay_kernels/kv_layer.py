"""One layer's keys and values in the cache, plain or quantised."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

KV_KINDS = ("plain", "fp8", "int8", "int4")

_STORED_DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8, "int4": torch.uint8}

_ALIGNMENT = 16
"""Numbers: at least as many bytes."""


@dataclass(frozen=True)
class KvLayer:
    """Blocks of keys and values.

    kind: "plain" (the model's dtype), "fp8", "int8" or "int4".
    k, v: [P, B, K, D] in the model's dtype, torch.float8_e4m3fn or torch.int8; for int4
    [P, B, K, D / 2] uint8, element i in the low four bits of byte i for i < D / 2, and element
    i + D / 2 in its high four, each plus 8.
    k_scale, v_scale: [P, B, K] float32, what a stored number is multiplied by; None for plain
    and for fp8, whose scale is one.
    """

    k: Tensor
    v: Tensor
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    kind: str = "plain"

    @property
    def num_kv_heads(self) -> int:
        """K."""
        return self.k.shape[2]

    @property
    def head_dim(self) -> int:
        """D, whatever of it is in a byte."""
        return self.k.shape[3] * (2 if self.kind == "int4" else 1)

    @property
    def num_bytes(self) -> int:
        """What it takes, scales included."""
        parts = (self.k, self.v, self.k_scale, self.v_scale)
        return sum(part.nbytes for part in parts if part is not None)


def new_kv_layers(
    num_layers: int, shape: Sequence[int], kind: str, dtype: torch.dtype, device: torch.device
) -> tuple[KvLayer, ...]:
    """Layers of zeros. A GPU's are allocated at once; a CPU's pages as each is first written to.

    shape: (P, B, K, D) of each. dtype: the model's.
    Raises: ValueError if the kind is none, or D is odd where two numbers share a byte; MemoryError
    if a CPU has no room for so many.
    """
    if kind not in KV_KINDS:
        raise ValueError(f"{kind} is no kind of KV cache; possible are {', '.join(KV_KINDS)}")
    *rows, head_dim = shape
    if kind == "int4":
        if head_dim % 2:
            raise ValueError(f"int4 keeps two numbers a byte, and head_dim {head_dim} is odd")
        head_dim //= 2

    num_stored = math.prod(rows) * head_dim
    stored_dtype = _STORED_DTYPES.get(kind, dtype)
    k, v = (_aligned_zeros(num_layers, num_stored, stored_dtype, device) for _ in range(2))
    k, v = (each.unflatten(1, (*rows, head_dim)) for each in (k, v))
    if kind in ("plain", "fp8"):
        return tuple(KvLayer(k[i], v[i], kind=kind) for i in range(num_layers))
    scale = _new_zeros((2, num_layers, *rows), torch.float32, device)
    return tuple(KvLayer(k[i], v[i], scale[0, i], scale[1, i], kind) for i in range(num_layers))


def _aligned_zeros(num_rows: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows of zeros [num_rows, size], each of which begins where vectors of bytes may be read."""
    padded = -(-size // _ALIGNMENT) * _ALIGNMENT
    return _new_zeros((num_rows, padded), dtype, device)[:, :size]


def _new_zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on a CPU of pages that the kernel gives when they are written to, 3 us a token.

    A cache is sized for the most that may come: what never came would be held for nothing.
    """
    num_items = math.prod(shape)
    if device.type != "cpu" or not num_items:
        return torch.zeros(shape, dtype=dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        pages = mmap.mmap(-1, num_items * dtype.itemsize, flags=flags)
    except OSError as error:
        raise MemoryError(f"{num_items * dtype.itemsize} bytes could not be mapped") from error
    return torch.frombuffer(pages, dtype=dtype).view(*shape)
