"""One layer's keys and values in the cache, plain or quantised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

KV_KINDS = ("plain", "fp8", "int8", "int4")

_STORED_DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8, "int4": torch.uint8}


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
    """Layers of zeros, every page of them touched; keys of all layers lie together, values too.

    shape: (P, B, K, D) of each. dtype: the model's.
    Raises: ValueError if the kind is none, or D is odd where two numbers share a byte.
    """
    if kind not in KV_KINDS:
        raise ValueError(f"{kind} is no kind of KV cache; possible are {', '.join(KV_KINDS)}")
    *rows, head_dim = shape
    if kind == "int4":
        if head_dim % 2:
            raise ValueError(f"int4 keeps two numbers a byte, and head_dim {head_dim} is odd")
        head_dim //= 2

    def zeros(*size: int, of: torch.dtype) -> Tensor:
        return torch.empty(num_layers, *size, dtype=of, device=device).zero_()

    k, v = (zeros(*rows, head_dim, of=_STORED_DTYPES.get(kind, dtype)) for _ in range(2))
    if kind in ("plain", "fp8"):
        return tuple(KvLayer(k[i], v[i], kind=kind) for i in range(num_layers))
    k_scale, v_scale = (zeros(*rows, of=torch.float32) for _ in range(2))
    return tuple(KvLayer(k[i], v[i], k_scale[i], v_scale[i], kind) for i in range(num_layers))
