"""A layer's attention: projections, norms of heads, rotation, cache."""

from __future__ import annotations

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint, Layer
from forebay_kernels import ops
from forebay_runtime.models.link import Link
from forebay_runtime.models.projection import Projection
from forebay_runtime.models.residual import Residual
from forebay_runtime.models.shard import Block
from forebay_runtime.models.weights import WeightReader


class Attention:
    """What a token takes of those before it."""

    def __init__(
        self, blueprint: Blueprint, layer: Layer, reader: WeightReader, name: str, link: Link
    ) -> None:
        sizes, family, shard = blueprint.sizes, blueprint.family, link.shard
        kv_shard = shard.of_copies(sizes.num_kv_heads)
        self._rule = ops.AttentionRule(
            layer.window, blueprint.attention_scale, blueprint.attention_softcap
        )
        num_queries = sizes.num_heads * sizes.head_dim
        queries = Block(num_queries, shard)
        keys = Block(sizes.num_kv_heads * sizes.head_dim, kv_shard)
        parts = {"q_proj": [queries], "k_proj": [keys], "v_proj": [keys]}
        if family.is_fused:
            parts = {"qkv_proj": [queries, keys, keys]}
        prefix = f"{name}.self_attn"
        self._qkv = reader.split_outputs(prefix, parts, sizes.hidden_size)
        self._out = Projection(
            reader.split_inputs(f"{prefix}.o_proj", sizes.hidden_size, num_queries),
            Projection.read_norm(blueprint, reader, name, family.norms.after_attention),
            blueprint.rms_norm_eps,
            link,
        )
        self._head_norms: ops.HeadNorms | None = None
        if family.has_qk_norm:
            q_norm, k_norm = (
                reader.norm(f"{prefix}.{part}_norm.weight", sizes.head_dim) for part in ("q", "k")
            )
            num_heads = shard.share(sizes.num_heads)
            num_kv_heads = kv_shard.share(sizes.num_kv_heads)
            weight = torch.cat((q_norm.expand(num_heads, -1), k_norm.expand(num_kv_heads, -1)))
            self._head_norms = ops.HeadNorms(weight, blueprint.rms_norm_eps)
        norms_bytes = 0 if self._head_norms is None else self._head_norms.weight.nbytes
        self.num_bytes = self._qkv.num_bytes + self._out.num_bytes + norms_bytes

    def add_to(
        self,
        residual: Residual,
        x: Tensor,
        rotation: ops.Rotation,
        plan: ops.AttentionPlan,
        cache: ops.KvLayer,
    ) -> None:
        """Attend by x [T, h], whose keys and values are cached, and add to residual."""
        q = ops.rotate_and_write(self._qkv(x), self._head_norms, rotation, cache, plan.slots)
        out = ops.paged_attention(q, cache, plan, self._rule)
        self._out.add_to(residual, ops.join_heads(out))
