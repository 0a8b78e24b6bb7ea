"""Norm, rotation, gate and cache write by few torch operations, on any device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of one, then by weight.

    Shapes: x [T, N]; weight [N]; out [T, N].
    Source: Zhang and Sennrich 2019 (RMSNorm) eq. 4.
    """
    return functional.rms_norm(x, weight.shape, weight, eps)


def rope_table(num_positions: int, head_dim: int, theta: float) -> Tensor:
    """The rotation of every position, ready for rotate: cosines and signed sines.

    Both are repeated for the two halves of a head, and the first half's sine is negative, so that
    a rotation is one product and one fused multiply-add with the halves swapped.
    Shapes: out [2, num_positions, 1, D] float32.
    Source: Su et al. 2021 (RoFormer) eq. 34, with the pairing of GPT-NeoX.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    angles = torch.outer(torch.arange(num_positions).float(), 1.0 / theta**exponents)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))).unsqueeze(2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]) by its position's angle; cos and sin from rope_table.

    Shapes: x [T, H, D]; cos, sin [T, 1, D]; out [T, H, D].
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Gate the right half by the left: silu(gate) * up.

    Shapes: gate_up [T, 2 * I]; out [T, I].
    Source: Shazeer 2020 (GLU variants) eq. 6.
    """
    size = gate_up.shape[-1] // 2
    return functional.silu(gate_up[:, :size]).mul_(gate_up[:, size:])


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Put each token's key and value into its slot; rows past the slots are padding.

    Shapes: k, v [T, K, D]; k_cache, v_cache [P, B, K, D]; slots [at most T] int64.
    """
    num_tokens = slots.shape[0]
    k_cache.flatten(0, 1).index_copy_(0, slots, k[:num_tokens])
    v_cache.flatten(0, 1).index_copy_(0, slots, v[:num_tokens])
