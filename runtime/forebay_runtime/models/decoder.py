"""The decoder that all families share: RMSNorm, rotary attention, a gated MLP.

Built by `registry` from a checkpoint, run by the runner. Its weights are fused (q, k and v; gate
and up) so that a layer is four matrix products. It knows no requests and no batching: attention and
cache writes go by the plan that it is handed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_budget.inspection import ModelConfig
from forebay_kernels import ops
from forebay_runtime.loading.checkpoint import Checkpoint, read_tensor


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder's sizes, and the numbers that memory does not depend on."""

    sizes: ModelConfig
    rms_norm_eps: float
    rope_theta: float
    num_positions: int
    """Positions that may occur: the engine's max_model_len."""


@dataclass(frozen=True)
class Placement:
    """Where and in which dtype weights live."""

    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class KvCache:
    """All layers' keys and values: k, v [L, P, B, K, D]."""

    k: Tensor
    v: Tensor


class DecoderLayer:
    """One block of attention and MLP."""

    def __init__(
        self, config: DecoderConfig, checkpoint: Checkpoint, name: str, placement: Placement
    ) -> None:
        sizes = config.sizes
        self._eps = config.rms_norm_eps
        self._num_heads, self._num_kv_heads = sizes.num_heads, sizes.num_kv_heads
        self._head_dim = sizes.head_dim
        fused = _Fuser(checkpoint, placement)
        hidden, inner = sizes.hidden_size, sizes.intermediate_size
        queries, keys = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        qkv = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        self._qkv = fused.linear(attention, qkv, hidden)
        self._o = fused.linear(attention, {"o_proj": hidden}, queries)
        self._gate_up = fused.linear(mlp, {"gate_proj": inner, "up_proj": inner}, hidden)
        self._down = fused.linear(mlp, {"down_proj": hidden}, inner)
        self._attention_norm = fused.vector(f"{name}.input_layernorm.weight", hidden)
        self._mlp_norm = fused.vector(f"{name}.post_attention_layernorm.weight", hidden)
        products = (self._qkv, self._o, self._gate_up, self._down)
        norms = (self._attention_norm, self._mlp_norm)
        self.num_bytes = sum(p.num_bytes for p in products) + sum(n.nbytes for n in norms)

    def __call__(self, x: Tensor, step: _Rotation, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        """Run the block. Shapes: x [T, h]; k_cache, v_cache [P, B, K, D]; out [T, h]."""
        normed = ops.rms_norm(x, self._attention_norm, self._eps)
        x = self._o.add_to(x, self._attend(self._qkv(normed), step, k_cache, v_cache))
        normed = ops.rms_norm(x, self._mlp_norm, self._eps)
        return self._down.add_to(x, ops.silu_mul(self._gate_up(normed)))

    def _attend(self, qkv: Tensor, step: _Rotation, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        """Rotate, cache and attend. Shapes: qkv [T, (H + 2K) * D]; out [T, H * D]."""
        num_rotated = self._num_heads + self._num_kv_heads
        heads = qkv.view(qkv.shape[0], -1, self._head_dim)
        rotated = ops.rotate(heads[:, :num_rotated], step.cos, step.sin)
        q, k = rotated[:, : self._num_heads], rotated[:, self._num_heads :]
        ops.write_kv(k, heads[:, num_rotated:], k_cache, v_cache, step.plan.slots)
        return ops.paged_attention(q, k_cache, v_cache, step.plan).flatten(1)


@dataclass(frozen=True)
class _Rotation:
    """What all layers of one step share: cos, sin [T, 1, D] and the attention plan."""

    cos: Tensor
    sin: Tensor
    plan: ops.AttentionPlan


class Decoder:
    """Token ids to hidden states, and hidden states to logits."""

    def __init__(self, config: DecoderConfig, checkpoint: Checkpoint, placement: Placement) -> None:
        """Read all weights.

        Raises: ModelError naming the tensor that is missing or wrong.
        """
        self.config = config
        self.placement = placement
        sizes = config.sizes
        fused = _Fuser(checkpoint, placement)
        self._embedding = fused.matrix("model.embed_tokens.weight", sizes)
        self._layers = [
            DecoderLayer(config, checkpoint, f"model.layers.{index}", placement)
            for index in range(sizes.num_layers)
        ]
        self._norm = fused.vector("model.norm.weight", sizes.hidden_size)
        if sizes.tie_word_embeddings:
            # Repacked it would be held twice, as rows are looked up in the original.
            self._head = ops.Linear(self._embedding, repack=False)
        else:
            self._head = ops.Linear(fused.matrix("lm_head.weight", sizes))
        exponents = torch.arange(0, sizes.head_dim, 2).float() / sizes.head_dim
        table = ops.rope_table(1.0 / config.rope_theta**exponents, config.num_positions)
        self._cos, self._sin = table.to(placement.device, placement.dtype)

    @property
    def window(self) -> int | None:
        """The most keys that any layer sees, its own included; None where a layer sees all."""
        return None

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights, a tied embedding once."""
        num_bytes = self._embedding.nbytes + self._norm.nbytes
        if not self.config.sizes.tie_word_embeddings:
            num_bytes += self._head.num_bytes
        return num_bytes + sum(layer.num_bytes for layer in self._layers)

    def new_cache(self, num_blocks: int, block_size: int) -> KvCache:
        """A cache of zeros in the model's dtype, every page of it touched."""
        sizes = self.config.sizes
        shape = (sizes.num_layers, num_blocks, block_size, sizes.num_kv_heads, sizes.head_dim)
        dtype, device = self.placement.dtype, self.placement.device
        k, v = (torch.empty(shape, dtype=dtype, device=device).zero_() for _ in range(2))
        return KvCache(k, v)

    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        plan: ops.AttentionPlan,
        cache: KvCache,
        num_layers: int | None = None,
    ) -> Tensor:
        """Run the layers, writing the tokens' keys and values.

        Shapes: token_ids, positions [T] int64; out [T, h], before the last norm.
        num_layers: only so many of the first layers; all layers have the same shapes, so warm-up
        needs but one.
        """
        x = torch.nn.functional.embedding(token_ids, self._embedding)
        step = _Rotation(self._cos[positions], self._sin[positions], plan)
        for index, layer in enumerate(self._layers[:num_layers]):
            x = layer(x, step, cache.k[index], cache.v[index])
        return x

    def normed(self, hidden: Tensor) -> Tensor:
        """What logits and embeddings are made of: the last norm. Shapes: hidden, out [T, h]."""
        return ops.rms_norm(hidden, self._norm, self.config.rms_norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """Score the vocabulary. Shapes: hidden [T, h]; out [T, V] float32."""
        return self._head(self.normed(hidden)).float()


class _Fuser:
    """Reads tensors into place, several side by side where one product will use them."""

    def __init__(self, checkpoint: Checkpoint, placement: Placement) -> None:
        self._checkpoint = checkpoint
        self._placement = placement

    def vector(self, name: str, size: int) -> Tensor:
        return read_tensor(self._checkpoint, name, self._empty(size))

    def matrix(self, name: str, sizes: ModelConfig) -> Tensor:
        return read_tensor(self._checkpoint, name, self._empty(sizes.vocab_size, sizes.hidden_size))

    def linear(self, prefix: str, parts: dict[str, int], num_inputs: int) -> ops.Linear:
        """One product of several parts (name → outputs), with the biases that are there."""
        names = [f"{prefix}.{part}" for part in parts]
        sizes = list(parts.values())
        weight = self._empty(sum(sizes), num_inputs)
        for name, rows in zip(names, weight.split(sizes), strict=True):
            read_tensor(self._checkpoint, f"{name}.weight", rows)
        has_bias = [self._checkpoint.has(f"{name}.bias") for name in names]
        if not any(has_bias):
            return ops.Linear(weight)
        bias = self._empty(sum(sizes)).zero_()
        for name, rows, is_there in zip(names, bias.split(sizes), has_bias, strict=True):
            if is_there:
                read_tensor(self._checkpoint, f"{name}.bias", rows)
        return ops.Linear(weight, bias)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self._placement.dtype, device=self._placement.device)
