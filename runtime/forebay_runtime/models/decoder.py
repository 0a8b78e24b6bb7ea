"""The decoder that all families share: embedding, layers of attention and MLP, norm, head.

Built from a blueprint and a checkpoint, run by the runner. It knows no requests and no batching:
attention and cache writes go by the plan that it is handed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint, Layer
from forebay_budget.inspection import ModelConfig
from forebay_budget.rope import Rope
from forebay_kernels import ops
from forebay_runtime.loading.checkpoint import Checkpoint
from forebay_runtime.models.attention import Attention
from forebay_runtime.models.kv_cache import KvCache
from forebay_runtime.models.link import ALONE, Link
from forebay_runtime.models.mlp import Mixture, Mlp
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.residual import Residual
from forebay_runtime.models.rope import rope_frequencies
from forebay_runtime.models.shard import Stage
from forebay_runtime.models.vocabulary import Embedding, Head
from forebay_runtime.models.weights import WeightReader


@dataclass(frozen=True)
class DecoderConfig:
    """What a model's files say, and how long requests may be."""

    blueprint: Blueprint
    num_positions: int
    """Positions that may occur: the engine's max_model_len."""

    @property
    def sizes(self) -> ModelConfig:
        """The numbers that memory depends on."""
        return self.blueprint.sizes


class DecoderLayer:
    """One block of attention and MLP, or of attention and a mixture."""

    def __init__(
        self, blueprint: Blueprint, layer: Layer, reader: WeightReader, name: str, link: Link
    ) -> None:
        self._eps = blueprint.rms_norm_eps
        self._attention = Attention(blueprint, layer, reader, name, link)
        block = Mixture if layer.has_experts else Mlp
        self._mlp = block(blueprint, reader, name, link)
        self.waits_for_device = self._mlp.waits_for_device
        norms, hidden = blueprint.family.norms, blueprint.sizes.hidden_size
        self._attention_norm = reader.norm(f"{name}.{norms.before_attention}.weight", hidden)
        self._mlp_norm = reader.norm(f"{name}.{norms.before_mlp}.weight", hidden)
        norms_bytes = self._attention_norm.nbytes + self._mlp_norm.nbytes
        self.num_bytes = self._attention.num_bytes + self._mlp.num_bytes + norms_bytes

    def __call__(
        self,
        residual: Residual,
        rotation: ops.Rotation,
        plan: ops.AttentionPlan,
        cache: ops.KvLayer,
    ) -> None:
        """Run the block on the stream."""
        normed = residual.normed(self._attention_norm, self._eps)
        self._attention.add_to(residual, normed, rotation, plan, cache)
        self._mlp.add_to(residual, residual.normed(self._mlp_norm, self._eps))


class Decoder:
    """Token ids to hidden states, and hidden states to logits; or one rank's part of that."""

    def __init__(
        self,
        config: DecoderConfig,
        checkpoint: Checkpoint,
        placement: Placement,
        link: Link = ALONE,
        stage: Stage | None = None,
    ) -> None:
        """Read all weights, or this rank's: the link's shard of the stage's layers.

        Raises: ModelError naming the tensor that is missing or wrong.
        """
        self.config = config
        self.placement = placement
        self.link = link
        blueprint, sizes = config.blueprint, config.sizes
        self.stage = stage = stage or Stage(0, sizes.num_layers, sizes.num_layers)
        reader = WeightReader(checkpoint, placement, blueprint, link)
        self._embedding = Embedding(sizes, reader, link) if stage.is_first else None
        self._embedding_scale = _embedding_scale(blueprint, placement)
        self._own_layers = blueprint.layers[stage.start : stage.stop]
        self._layers = [
            DecoderLayer(blueprint, layer, reader, f"model.layers.{index}", link)
            for index, layer in enumerate(self._own_layers, stage.start)
        ]
        self._norm = reader.norm("model.norm.weight", sizes.hidden_size)
        self._head = Head(sizes, reader, link, self._embedding) if stage.is_last else None
        ropes = list(dict.fromkeys(layer.rope for layer in self._own_layers))
        # By number: a rope is long to hash, and every layer of every step looks one up.
        self._rope_of_layer = [ropes.index(layer.rope) for layer in self._own_layers]
        self._rope_tables = [_build_table(config, rope, reader, placement) for rope in ropes]

    @property
    def window(self) -> int | None:
        """The most keys that any layer sees, its own included; None where a layer sees all."""
        return self.config.sizes.window

    @property
    def waits_for_device(self) -> bool:
        """Must the host learn something of the device within a step? No graph can hold that."""
        return any(layer.waits_for_device for layer in self._layers)

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights, a tied embedding once."""
        parts = (self._embedding, *self._layers, self._head)
        return self._norm.nbytes + sum(part.num_bytes for part in parts if part is not None)

    def new_cache(self, num_blocks: int, block_size: int) -> KvCache:
        """A cache of zeros in the placement's number format."""
        sizes, placement = self.config.sizes, self.placement
        num_heads = self.link.shard.of_copies(sizes.num_kv_heads).share(sizes.num_kv_heads)
        shape = (num_blocks, block_size, num_heads, sizes.head_dim)
        kind, dtype = placement.kv_storage
        return KvCache(ops.new_kv_layers(len(self._layers), shape, kind, dtype, placement.device))

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        plan: ops.AttentionPlan,
        cache: KvCache,
        num_layers: int | None = None,
    ) -> Tensor:
        """Run this rank's layers, writing the tokens' keys and values.

        Shapes: token_ids, positions [T] int64; out [T, h], before the last norm.
        num_layers: only so many layers of each kind; those of a kind have the same shapes, so
        warm-up needs but one.
        """
        residual = Residual(self._begin(token_ids))
        rotations = [ops.Rotation(cos, sin, positions) for cos, sin in self._rope_tables]
        for index in self._chosen(num_layers):
            rotation = rotations[self._rope_of_layer[index]]
            self._layers[index](residual, rotation, plan, cache.layers[index])
        return self._end(residual.total())

    def _begin(self, token_ids: Tensor) -> Tensor:
        """What the first of this rank's layers takes: embeddings, or what the stage before made."""
        if self._embedding is None:
            dtype, device = self.placement.dtype, self.placement.device
            shape = (len(token_ids), self.config.sizes.hidden_size)
            return self.link.receive(torch.empty(shape, dtype=dtype, device=device))
        x = self._embedding(token_ids)
        return x if self._embedding_scale is None else ops.scale(x, self._embedding_scale)

    def _end(self, x: Tensor) -> Tensor:
        """Hand on what this rank's last layer made; rank 0 gets what the model's last one did."""
        if not self.stage.is_last:
            self.link.send(x)
            return self.link.take(x)
        if not self.stage.is_first:
            self.link.give(x)
        return x

    def _chosen(self, num_layers: int | None) -> list[int]:
        """The layers to run: all, or the first num_layers of each kind."""
        if num_layers is None:
            return list(range(len(self._layers)))
        by_kind: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self._own_layers):
            by_kind.setdefault(layer, []).append(index)
        return sorted(index for indices in by_kind.values() for index in indices[:num_layers])

    def normed(self, hidden: Tensor) -> Tensor:
        """What logits and embeddings are made of: the last norm. Shapes: hidden, out [T, h]."""
        return ops.rms_norm(hidden, self._norm, self.config.blueprint.rms_norm_eps)

    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """Score the vocabulary.

        Shapes: hidden [T, h]; out [T, V] float32, what to write to, else a new tensor. Where
        another rank has the head, rank 0 gets its scores, and others what chance has in out.
        """
        if self._head is None:
            if out is None:
                shape = (len(hidden), self.config.sizes.vocab_size)
                out = hidden.new_empty(shape, dtype=torch.float32)
            return self.link.take(out)
        logits = self._head(self.normed(hidden))
        cap = self.config.blueprint.logit_softcap
        logits = logits if cap is None else ops.softcap(logits, cap)
        logits = ops.widen(logits) if out is None else out.copy_(logits)
        if not self.stage.is_first:
            self.link.give(logits)
        return logits


def _embedding_scale(blueprint: Blueprint, placement: Placement) -> Tensor | None:
    """What embeddings are multiplied by, rounded as the model was trained."""
    if not blueprint.family.scales_embedding:
        return None
    scale = blueprint.sizes.hidden_size**0.5
    return torch.tensor(scale, dtype=placement.dtype, device=placement.device)


def _build_table(
    config: DecoderConfig, rope: Rope, reader: WeightReader, placement: Placement
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all positions that may occur."""
    max_positions = config.sizes.max_position_embeddings
    frequencies, scale = rope_frequencies(rope, config.num_positions, max_positions, reader.vector)
    table = ops.rope_table(frequencies, config.num_positions, scale)
    cos, sin = table.to(placement.device, placement.dtype)
    return cos, sin
