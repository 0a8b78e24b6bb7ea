"""What each operation means, written to be read: the oracle for every faster implementation.

Loops over sequences, computes in float32 and makes no attempt at speed; only tests call it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.quant_matrix import QuantMatrix
from forebay_kernels.ragged import Ragged
from forebay_kernels.rotation import HeadNorms, Rotation


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a root mean square of one, then by weight.

    Shapes: x [T, N]; weight [N]; out [T, N].
    Source: Zhang and Sennrich 2019 (RMSNorm) eq. 4.
    """
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add x to the residual stream, rounded to its dtype, and norm the sum.

    Shapes: x, residual [T, N]; weight [N]; out: the normed, and the sum.
    """
    total = residual + x
    return rms_norm(total, weight, eps), total


def embedding(token_ids: Tensor, table: Tensor, first_id: int = 0) -> Tensor:
    """The row of each token in a shard of the vocabulary; zeros for those of other shards.

    Shapes: token_ids [T] int64; table [V, N], whose first row is first_id's; out [T, N].
    """
    out = table.new_zeros(len(token_ids), table.shape[1])
    for row, token_id in enumerate(token_ids.tolist()):
        if first_id <= token_id < first_id + len(table):
            out[row] = table[token_id - first_id]
    return out


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


def rotate_and_write(
    qkv: Tensor, norms: HeadNorms | None, rotation: Rotation, layer: KvLayer, slots: Tensor
) -> Tensor:
    """Norm the query and key heads, turn their first R numbers, and write keys and values.

    Shapes: qkv [T, (H + 2K) * D]; slots [T] int64, -1 for a token that has none; out [T, H, D].
    """
    num_kv_heads, size = layer.num_kv_heads, rotation.cos.shape[-1]
    heads = qkv.view(qkv.shape[0], -1, layer.head_dim)
    turned, v = heads[:, :-num_kv_heads].clone(), heads[:, -num_kv_heads:]
    if norms is not None:
        for head, weight in enumerate(norms.weight):
            turned[:, head] = rms_norm(turned[:, head], weight, norms.eps)
    cos = rotation.cos[rotation.positions, 0, : size // 2]
    sin = rotation.sin[rotation.positions, 0, size // 2 :]
    turned[..., :size] = rotate(turned[..., :size], cos, sin)
    write_kv(turned[:, -num_kv_heads:], v, layer, slots)
    return turned[:, :-num_kv_heads]


def write_kv(k: Tensor, v: Tensor, layer: KvLayer, slots: Tensor) -> None:
    """Put each token's key and value into its slot, only finite numbers.

    Shapes: k, v [T, K, D]; slots [T] int64, -1 for a token that has none.
    """
    for x, stored, scale in ((k, layer.k, layer.k_scale), (v, layer.v, layer.v_scale)):
        for row, slot in enumerate(slots.tolist()):
            if slot < 0:
                continue
            block, offset = divmod(slot, stored.shape[1])
            for head in range(layer.num_kv_heads):
                numbers = torch.nan_to_num(x[row, head].float(), 0.0, 65504.0, -65504.0)
                kept, own_scale = _quantise(numbers, layer.kind)
                stored[block, offset, head] = kept.to(stored.dtype)
                if scale is not None:
                    scale[block, offset, head] = own_scale


def _quantise(numbers: Tensor, kind: str) -> tuple[Tensor, float]:
    """One head's numbers [D] as a cache of that kind keeps them, and their scale."""
    if kind == "plain":
        return numbers, 1.0
    if kind == "fp8":
        return numbers.clamp(-448, 448), 1.0
    largest = {"int8": 127, "int4": 7}[kind]
    scale = max(float(numbers.abs().max()), 1e-20) / largest
    whole = (numbers / scale).round().clamp(-largest, largest)
    if kind == "int8":
        return whole, scale
    half = len(whole) // 2
    return (whole[:half] + 8) + 16 * (whole[half:] + 8), scale


def read_kv(layer: KvLayer) -> tuple[Tensor, Tensor]:
    """All keys and values of a layer, each [P, B, K, D] float32."""
    k, v = layer.k, layer.v
    if layer.kind == "int4":
        k, v = (torch.cat((each % 16, each // 16), -1).float() - 8 for each in (k, v))
    k, v = k.float(), v.float()
    if layer.k_scale is not None and layer.v_scale is not None:
        k, v = k * layer.k_scale[..., None], v * layer.v_scale[..., None]
    return k, v


def paged_attention(
    q: Tensor, layer: KvLayer, ragged: Ragged, rule: AttentionRule = FULL_ATTENTION
) -> Tensor:
    """Attend each query token to its sequence's cached keys and values, up to its own position.

    Shapes: q, out [T, H, D]; block tables [S, M] int32.
    Raises: ValueError if H % K != 0.
    Source: Kwon et al. 2023 (PagedAttention) §4.
    """
    num_heads, num_kv_heads = q.shape[1], layer.num_kv_heads
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} query heads do not divide over {num_kv_heads} KV heads")
    out = torch.empty_like(q)
    all_keys, all_values = read_kv(layer)
    row = 0
    for index, query_len in enumerate(ragged.query_lens):
        blocks = ragged.block_tables[index].long()
        keys, values = all_keys[blocks].flatten(0, 1), all_values[blocks].flatten(0, 1)
        for position in range(ragged.seq_lens[index] - query_len, ragged.seq_lens[index]):
            first = 0 if rule.window is None else max(0, position + 1 - rule.window)
            seen = slice(first, position + 1)
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                weights = _weigh(q[row, head].float(), keys[seen, kv_head], rule, head)
                out[row, head] = (weights @ values[seen, kv_head]).to(q.dtype)
            row += 1
    return out


def _weigh(query: Tensor, keys: Tensor, rule: AttentionRule, head: int) -> Tensor:
    """How much one query takes of each key's value: [keys], with the sink's adding up to one."""
    scale = query.shape[0] ** -0.5 if rule.scale is None else rule.scale
    scores = keys @ query * scale
    if rule.softcap is not None:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    if rule.sinks is not None:
        return torch.softmax(torch.cat((scores, rule.sinks[head, None])), 0)[:-1]
    return torch.softmax(scores, 0)


def quant_linear(x: Tensor, matrix: QuantMatrix, bias: Tensor | None = None) -> Tensor:
    """Multiply by the weight that a quantised matrix stands for, in float32.

    Shapes: x [T, I]; matrix N by I; bias [N]; out [T, N].
    """
    out = x.float() @ matrix.dequantised(torch.float32).T
    return (out if bias is None else out + bias.float()).to(x.dtype)


def kept_tokens(scores: Tensor, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Which tokens may be drawn, by their scores [V] over the temperature: [V] bool.

    min_p drops those less likely than so much of the best; top_k keeps so many of the best (0: all)
    and top_p the fewest of these that hold so much of what they hold. Lower ids win among equals.
    Source: Holtzman et al. 2020 (nucleus sampling) §3.1.
    """
    chances = torch.softmax(scores.double(), 0)
    chances = torch.where(chances < chances.max() * min_p, 0.0, chances)
    sorted_chances, order = chances.sort(descending=True, stable=True)
    num_kept = min(top_k or len(scores), len(scores))
    held = sorted_chances[:num_kept].cumsum(0)
    if top_p < 1:
        num_kept = min(num_kept, int((held < held[-1] * top_p).sum()) + 1)
    is_kept = torch.zeros(len(scores), dtype=torch.bool)
    is_kept[order[:num_kept]] = True
    return is_kept & (chances > 0)
