"""A decoder layer in the steps between which its inputs are looked at, in float32.

Calibration needs what goes into each matrix, which a served model does not show. Sequences are
whole and of one length, so there is no cache: a step is a plain function of [B, L, ...].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from forebay_budget.blueprint import Blueprint, Layer
from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.portable import elementwise
from forebay_kernels.portable.attention import attend
from forebay_runtime.quantizing.layer_tensors import LayerTensors

RopeTable = tuple[Tensor, Tensor]
"""Cosines and sines of all positions, each [L, 1, R]."""

_GATES = {"silu": elementwise.silu_mul, "gelu_pytorch_tanh": elementwise.gelu_tanh_mul}


class LayerSteps:
    """One layer's computation over sequences of L tokens."""

    def __init__(
        self, blueprint: Blueprint, layer: Layer, tensors: LayerTensors, rope: RopeTable
    ) -> None:
        self._blueprint, self._tensors, self._rope = blueprint, tensors, rope
        self._rule = AttentionRule(
            layer.window, blueprint.attention_scale, blueprint.attention_softcap
        )
        self._mask = _window_mask(layer.window, len(rope[0]), rope[0].device)

    def attention_inputs(self, x: Tensor) -> Tensor:
        """What the projections of queries, keys and values take. Shapes: x, out [B, L, h]."""
        return self._norm(x, self._blueprint.family.norms.before_attention)

    def attended(self, inputs: Tensor) -> Tensor:
        """What the output projection takes. Shapes: inputs [B, L, h]; out [B, L, H * D]."""
        sizes = self._blueprint.sizes
        if self._blueprint.family.is_fused:
            qkv = self._multiply(inputs, "self_attn.qkv_proj")
        else:
            parts = [self._multiply(inputs, f"self_attn.{part}_proj") for part in "qkv"]
            qkv = torch.cat(parts, -1)
        heads = qkv.unflatten(-1, (-1, sizes.head_dim))
        counts = [sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads]
        queries, keys, values = heads.split(counts, 2)
        queries, keys = self._turned(queries, "q"), self._turned(keys, "k")
        return attend(queries, keys, values, self._rule, self._mask).flatten(2)

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """The stream with what attention gives. Shapes: x, out [B, L, h]."""
        out = self._multiply(attended, "self_attn.o_proj")
        return x + self._norm(out, self._blueprint.family.norms.after_attention)

    def mlp_inputs(self, x: Tensor) -> Tensor:
        """What gate and up take. Shapes: x, out [B, L, h]."""
        return self._norm(x, self._blueprint.family.norms.before_mlp)

    def mlp_gated(self, x: Tensor) -> Tensor:
        """What the down projection takes. Shapes: x [B, L, h]; out [B, L, I]."""
        inputs = self.mlp_inputs(x)
        if self._blueprint.family.is_fused:
            gate_up = self._multiply(inputs, "mlp.gate_up_proj")
        else:
            parts = [self._multiply(inputs, f"mlp.{part}_proj") for part in ("gate", "up")]
            gate_up = torch.cat(parts, -1)
        rows = gate_up.flatten(0, -2)
        gated = _GATES[self._blueprint.family.activation](rows)
        return gated.view(*inputs.shape[:-1], -1)

    def after_mlp(self, x: Tensor, gated: Tensor) -> Tensor:
        """The stream with what the MLP gives. Shapes: x, out [B, L, h]."""
        out = self._multiply(gated, "mlp.down_proj")
        return x + self._norm(out, self._blueprint.family.norms.after_mlp)

    def _norm(self, x: Tensor, name: str | None) -> Tensor:
        if name is None:
            return x
        return elementwise.rms_norm(x, self._tensors.norms[name], self._blueprint.rms_norm_eps)

    def _multiply(self, x: Tensor, name: str) -> Tensor:
        matrix = self._tensors.matrices[name]
        return functional.linear(x, matrix.weight, matrix.bias)

    def _turned(self, heads: Tensor, part: str) -> Tensor:
        """Queries or keys, normed by head where the family does, and rotated: [B, L, H, D]."""
        if self._blueprint.family.has_qk_norm:
            heads = self._norm(heads, f"self_attn.{part}_norm")
        return elementwise.rotate(heads, *self._rope)


def _window_mask(window: int | None, num_tokens: int, device: torch.device) -> Tensor | None:
    """What is added to scores under a window: [1, 1, L, L]; None where the triangle is all."""
    if window is None or window >= num_tokens:
        return None
    places = torch.arange(num_tokens, device=device)
    behind = places[:, None] - places
    is_seen = (behind >= 0) & (behind < window)
    return torch.zeros(is_seen.shape, device=device).masked_fill_(~is_seen, float("-inf"))[
        None, None
    ]
