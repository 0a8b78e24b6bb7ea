"""One layer's keys and values in the cache, plain or quantised."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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
