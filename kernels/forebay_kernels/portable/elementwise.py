"""Norm, rotation, gate and cache write by few torch operations, on any device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from forebay_kernels.cpu.packed_matrix import PackedMatrix


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of one, then by weight, which may be wider than x.

    Shapes: x [..., N]; weight [N]; out [..., N].
    Source: Zhang and Sennrich 2019 (RMSNorm) eq. 4.
    """
    if weight.dtype != x.dtype:
        return functional.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)
    return functional.rms_norm(x, weight.shape, weight, eps)


def rms_norm_heads(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm each head by itself, with a weight of its own. Shapes: x, out [T, H, D]; weight [H, D].

    Source: Henry et al. 2020 (query-key normalization).
    """
    wide = x.to(weight.dtype)
    return functional.rms_norm(wide, weight.shape[-1:], None, eps).mul_(weight).to(x.dtype)


def rope_table(frequencies: Tensor, num_positions: int, scale: float = 1.0) -> Tensor:
    """The rotation of every position, ready for rotate: cosines and signed sines.

    Both are repeated for the two halves of a head, and the first half's sine is negative, so that
    a rotation is one product and one fused multiply-add with the halves swapped.
    scale: of what is rotated, as some ways to stretch a context ask.
    Shapes: frequencies [R / 2], in radians a position; out [2, num_positions, 1, R] float32.
    Source: Su et al. 2021 (RoFormer) eq. 34, with the pairing of GPT-NeoX.
    """
    angles = torch.outer(torch.arange(num_positions).float(), frequencies)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))).unsqueeze(2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + R/2]) by its position's angle; cos and sin from rope_table.

    What of a head lies behind R stays as it is.
    Shapes: x [T, H, D]; cos, sin [T, 1, R]; out [T, H, D].
    """
    size = cos.shape[-1]
    if size < x.shape[-1]:
        return torch.cat((rotate(x[..., :size], cos, sin), x[..., size:]), -1)
    return torch.addcmul(x * cos, x.roll(size // 2, -1), sin)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Gate the right half by the left: silu(gate) * up.

    Shapes: gate_up [T, 2 * I]; out [T, I].
    Source: Shazeer 2020 (GLU variants) eq. 6.
    """
    size = gate_up.shape[-1] // 2
    return functional.silu(gate_up[:, :size]).mul_(gate_up[:, size:])


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    """Gate the right half by the left: gelu(gate) * up, by the tanh form of gelu.

    Shapes: gate_up [T, 2 * I]; out [T, I].
    Source: Shazeer 2020 (GLU variants) eq. 6; Hendrycks and Gimpel 2016 (GELU) §2.
    """
    size = gate_up.shape[-1] // 2
    return functional.gelu(gate_up[:, :size], approximate="tanh").mul_(gate_up[:, size:])


def add(x: Tensor, y: Tensor) -> Tensor:
    """Their sum. Shapes: x, y, out [T, N]."""
    return x + y


def scale(x: Tensor, factor: Tensor) -> Tensor:
    """Their product. Shapes: x, out [T, N]; factor [], of x's dtype."""
    return x * factor


def join_heads(x: Tensor) -> Tensor:
    """The heads of each token side by side. Shapes: x [T, H, D]; out [T, H * D]."""
    return x.flatten(1)


def widen(x: Tensor) -> Tensor:
    """The same numbers in float32."""
    return x.float()


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)). Shapes: x, out [T, N]."""
    return torch.sigmoid(x)


def softcap(x: Tensor, cap: float) -> Tensor:
    """Bend numbers so that none is beyond cap: cap * tanh(x / cap), in float32."""
    return torch.tanh(x.float() / cap) * cap


def embedding(
    token_ids: Tensor, table: Tensor | PackedMatrix, first_id: int | None = None
) -> Tensor:
    """Look tokens up in a table, or in a shard of one, where those of other shards give zeros.

    first_id: the token of a shard's first row; None: the table is whole and has every token.
    Shapes: token_ids [T] int64; table [V, N]; out [T, N].
    """
    if first_id is None:
        return _rows(table, token_ids)
    rows = token_ids - first_id
    num_rows = len(table) if isinstance(table, Tensor) else table.num_outputs
    is_absent = (rows < 0) | (rows >= num_rows)
    found = _rows(table, rows.masked_fill(is_absent, 0))
    return found.masked_fill_(is_absent.unsqueeze(1), 0)


def _rows(table: Tensor | PackedMatrix, rows: Tensor) -> Tensor:
    return functional.embedding(rows, table) if isinstance(table, Tensor) else table.rows(rows)
