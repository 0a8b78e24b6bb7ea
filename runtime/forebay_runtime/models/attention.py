"""A layer's attention: projections, norms of heads, rotation, cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint, Layer
from forebay_kernels import ops
from forebay_runtime.models.projection import Projection
from forebay_runtime.models.weights import WeightReader


@dataclass(frozen=True)
class Rotation:
    """One rotary embedding at a step's positions: cos, sin [T, 1, R]."""

    cos: Tensor
    sin: Tensor


class Attention:
    """What a token takes of those before it."""

    def __init__(self, blueprint: Blueprint, layer: Layer, reader: WeightReader, name: str) -> None:
        sizes, family = blueprint.sizes, blueprint.family
        self._num_heads, self._num_kv_heads = sizes.num_heads, sizes.num_kv_heads
        self._head_dim = sizes.head_dim
        self._eps = blueprint.rms_norm_eps
        self._rule = ops.AttentionRule(
            layer.window, blueprint.attention_scale, blueprint.attention_softcap
        )
        queries, keys = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
        parts = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        if family.is_fused:
            parts = {"qkv_proj": queries + 2 * keys}
        prefix = f"{name}.self_attn"
        self._qkv = reader.linear(prefix, parts, sizes.hidden_size)
        self._out = Projection(
            reader.linear(prefix, {"o_proj": sizes.hidden_size}, queries),
            Projection.read_norm(blueprint, reader, name, family.norms.after_attention),
            blueprint.rms_norm_eps,
        )
        self._head_norms: Tensor | None = None
        if family.has_qk_norm:
            q_norm, k_norm = (
                reader.norm(f"{prefix}.{part}_norm.weight", sizes.head_dim) for part in ("q", "k")
            )
            self._head_norms = torch.cat(
                (q_norm.expand(sizes.num_heads, -1), k_norm.expand(sizes.num_kv_heads, -1))
            )
        norms_bytes = 0 if self._head_norms is None else self._head_norms.nbytes
        self.num_bytes = self._qkv.num_bytes + self._out.num_bytes + norms_bytes

    def add_to(
        self,
        residual: Tensor,
        x: Tensor,
        rotation: Rotation,
        plan: ops.AttentionPlan,
        cache: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Attend by x and add to residual.

        Shapes: residual, x, out [T, h]; cache: keys and values, each [P, B, K, D].
        """
        return self._out.add_to(residual, self._attend(self._qkv(x), rotation, plan, cache))

    def _attend(
        self, qkv: Tensor, rotation: Rotation, plan: ops.AttentionPlan, cache: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Rotate, cache and attend. Shapes: qkv [T, (H + 2K) * D]; out [T, H * D]."""
        num_rotated = self._num_heads + self._num_kv_heads
        heads = qkv.view(qkv.shape[0], -1, self._head_dim)
        turned = heads[:, :num_rotated]
        if self._head_norms is not None:
            turned = ops.rms_norm_heads(turned, self._head_norms, self._eps)
        rotated = ops.rotate(turned, rotation.cos, rotation.sin)
        q, k = rotated[:, : self._num_heads], rotated[:, self._num_heads :]
        ops.write_kv(k, heads[:, num_rotated:], *cache, plan.slots)
        return ops.paged_attention(q, *cache, plan, self._rule).flatten(1)
