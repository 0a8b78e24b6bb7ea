"""What each operation means, written to be read: the oracle for every faster implementation.

Loops over sequences, computes in float32 and makes no attempt at speed; only tests call it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.ragged import Ragged


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of one, then by weight.

    Shapes: x [T, N]; weight [N]; out [T, N].
    Source: Zhang and Sennrich 2019 (RMSNorm) eq. 4.
    """
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]) by its position's angle.

    Shapes: x [T, H, D]; cos, sin [T, D/2]; out [T, H, D].
    Source: Su et al. 2021 (RoFormer) eq. 34, with the pairing of GPT-NeoX.
    """
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos.float().unsqueeze(1), sin.float().unsqueeze(1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Gate the right half by the left: silu(gate) * up.

    Shapes: gate_up [T, 2 * I]; out [T, I].
    Source: Shazeer 2020 (GLU variants) eq. 6.
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)


def gelu_tanh_mul(gate_up: Tensor) -> Tensor:
    """Gate the right half by the left: gelu(gate) * up, by the tanh form of gelu.

    Shapes: gate_up [T, 2 * I]; out [T, I].
    Source: Shazeer 2020 (GLU variants) eq. 6; Hendrycks and Gimpel 2016 (GELU) §2.
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    inner = (2 / math.pi) ** 0.5 * (gate + 0.044715 * gate**3)
    return (0.5 * gate * (1 + torch.tanh(inner)) * up).to(gate_up.dtype)


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """Put each token's key and value into its slot.

    Shapes: k, v [T, K, D]; k_cache, v_cache [P, B, K, D]; slots [T] int64.
    """
    block_size = k_cache.shape[1]
    for row, slot in enumerate(slots.tolist()):
        k_cache[slot // block_size, slot % block_size] = k[row]
        v_cache[slot // block_size, slot % block_size] = v[row]


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    ragged: Ragged,
    rule: AttentionRule = FULL_ATTENTION,
) -> Tensor:
    """Attend each query token to its sequence's cached keys and values, up to its own position.

    Shapes: q [T, H, D]; k_cache, v_cache [P, B, K, D]; block tables [S, M] int32; out [T, H, D].
    Raises: ValueError if H % K != 0.
    Source: Kwon et al. 2023 (PagedAttention) §4.
    """
    num_heads, num_kv_heads = q.shape[1], k_cache.shape[2]
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads do not divide over {num_kv_heads} KV heads")
    out = torch.empty_like(q)
    row = 0
    for index, query_len in enumerate(ragged.query_lens):
        blocks = ragged.block_tables[index].long()
        keys, values = k_cache[blocks].flatten(0, 1).float(), v_cache[blocks].flatten(0, 1).float()
        for position in range(ragged.seq_lens[index] - query_len, ragged.seq_lens[index]):
            first = 0 if rule.window is None else max(0, position + 1 - rule.window)
            seen = slice(first, position + 1)
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                weights = _weigh(q[row, head].float(), keys[seen, kv_head], rule)
                out[row, head] = (weights @ values[seen, kv_head]).to(q.dtype)
            row += 1
    return out


def _weigh(query: Tensor, keys: Tensor, rule: AttentionRule) -> Tensor:
    """How much one query takes of each key's value: [keys], adding up to one."""
    scale = query.shape[0] ** -0.5 if rule.scale is None else rule.scale
    scores = keys @ query * scale
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    return torch.softmax(scores, 0)
