"""From a model's blueprint to the shape that kernels are compiled for."""

from __future__ import annotations

from dataclasses import dataclass

from forebay_budget.blueprint import Blueprint
from forebay_kernels.gpu.architecture import Architecture
from forebay_kernels.gpu.model_shape import (
    Activation,
    Dtype,
    KvKind,
    Mixture,
    ModelShape,
    Weights,
)

_DTYPES: dict[str, Dtype] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True)
class Serving:
    """What the engine's flags add to a model: dtype by torch's name; num_ranks share a layer."""

    dtype: str
    kv_kind: KvKind = "plain"
    block_size: int = 16
    weights: Weights = Weights()
    num_ranks: int = 1
    is_batch_invariant: bool = False


def kernel_shape(blueprint: Blueprint, serving: Serving, architecture: Architecture) -> ModelShape:
    """What one rank runs; where KV heads are fewer than ranks, each rank holds one of them."""
    sizes, family, ranks = blueprint.sizes, blueprint.family, serving.num_ranks
    dtype = _DTYPES[serving.dtype]
    return ModelShape(
        architecture=architecture,
        dtype=dtype,
        head_dim=sizes.head_dim,
        num_heads=sizes.num_heads // ranks,
        num_kv_heads=max(1, sizes.num_kv_heads // ranks),
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size // ranks,
        vocab_size=-(-sizes.vocab_size // ranks),
        rotary_dim=blueprint.layers[0].rope.num_dims,
        norm_dtype="fp32" if family.norm_offset else dtype,
        kv_kind=serving.kv_kind,
        block_size=serving.block_size,
        window_kinds=tuple(sorted({layer.window is not None for layer in blueprint.layers})),
        has_softcap=blueprint.attention_softcap is not None,
        has_logit_softcap=blueprint.logit_softcap is not None,
        has_qk_norm=family.has_qk_norm,
        has_qkv_bias=family.needs_qkv_bias,
        activation=_ACTIVATIONS[family.activation],
        weights=serving.weights,
        mixture=_mixture(blueprint, ranks),
        is_batch_invariant=serving.is_batch_invariant,
    )


def _mixture(blueprint: Blueprint, num_ranks: int) -> Mixture | None:
    sizes = blueprint.sizes
    if not sizes.num_experts:
        return None
    return Mixture(
        sizes.num_experts,
        sizes.num_experts_per_token,
        sizes.expert_intermediate_size // num_ranks,
        sizes.shared_intermediate_size // num_ranks,
        blueprint.normalises_experts,
    )
