"""The models that the launch tables are made for and compiled ahead of time with.

Each stands for a way in which kernels differ: head sizes, groups of query heads, norms of heads,
windows and caps, mixtures, caches and weights in few bits. Sizes by the models' config.json.
"""

from __future__ import annotations

from dataclasses import replace

from forebay_kernels.gpu.architecture import Architecture
from forebay_kernels.gpu.model_shape import Mixture, ModelShape, Weights


def llama_3_1_8b(architecture: Architecture) -> ModelShape:
    """Llama-3.1-8B in bfloat16."""
    return ModelShape(
        architecture,
        dtype="bf16",
        head_dim=128,
        num_heads=32,
        num_kv_heads=8,
        hidden_size=4_096,
        intermediate_size=14_336,
        vocab_size=128_256,
        rotary_dim=128,
        norm_dtype="bf16",
    )


def qwen3_0_6b(architecture: Architecture) -> ModelShape:
    """Qwen3-0.6B in bfloat16: norms of queries and keys."""
    return ModelShape(
        architecture,
        dtype="bf16",
        head_dim=128,
        num_heads=16,
        num_kv_heads=8,
        hidden_size=1_024,
        intermediate_size=3_072,
        vocab_size=151_936,
        rotary_dim=128,
        norm_dtype="bf16",
        has_qk_norm=True,
    )


def smollm2_135m(architecture: Architecture) -> ModelShape:
    """SmolLM2-135M in bfloat16: small heads, in groups of three."""
    return ModelShape(
        architecture,
        dtype="bf16",
        head_dim=64,
        num_heads=9,
        num_kv_heads=3,
        hidden_size=576,
        intermediate_size=1_536,
        vocab_size=49_152,
        rotary_dim=64,
        norm_dtype="bf16",
    )


def qwen2_5_7b(architecture: Architecture) -> ModelShape:
    """Qwen2.5-7B in bfloat16: biases, and groups of seven."""
    return ModelShape(
        architecture,
        dtype="bf16",
        head_dim=128,
        num_heads=28,
        num_kv_heads=4,
        hidden_size=3_584,
        intermediate_size=18_944,
        vocab_size=152_064,
        rotary_dim=128,
        norm_dtype="bf16",
        has_qkv_bias=True,
    )


def gemma_2_9b(architecture: Architecture) -> ModelShape:
    """Gemma-2-9B in bfloat16: large heads, windows in every second layer, caps, wide norms."""
    return ModelShape(
        architecture,
        dtype="bf16",
        head_dim=256,
        num_heads=16,
        num_kv_heads=8,
        hidden_size=3_584,
        intermediate_size=14_336,
        vocab_size=256_000,
        rotary_dim=256,
        norm_dtype="fp32",
        window_kinds=(False, True),
        has_softcap=True,
        has_logit_softcap=True,
        activation="gelu_tanh",
    )


def mixtral_8x7b(architecture: Architecture) -> ModelShape:
    """Mixtral-8x7B in bfloat16: a mixture of few large experts."""
    return ModelShape(
        architecture,
        dtype="bf16",
        head_dim=128,
        num_heads=32,
        num_kv_heads=8,
        hidden_size=4_096,
        intermediate_size=14_336,
        vocab_size=32_000,
        rotary_dim=128,
        norm_dtype="bf16",
        mixture=Mixture(8, 2, 14_336, is_normalised=True),
    )


def shipped_shapes(architecture: Architecture) -> tuple[ModelShape, ...]:
    """Each model as it is, and one of them in every cache and every format of weights."""
    llama = llama_3_1_8b(architecture)
    return (
        llama,
        qwen3_0_6b(architecture),
        smollm2_135m(architecture),
        qwen2_5_7b(architecture),
        gemma_2_9b(architecture),
        mixtral_8x7b(architecture),
        replace(llama, dtype="fp16", norm_dtype="fp16"),
        replace(llama, is_batch_invariant=True),
        replace(llama, kv_kind="fp8"),
        replace(llama, kv_kind="int8"),
        replace(llama, kv_kind="int4"),
        replace(llama, weights=Weights("int4", 128, has_zero_points=True)),
        replace(llama, weights=Weights("int4", 64)),
        replace(llama, weights=Weights("int4", 32)),
        replace(llama, weights=Weights("int8")),
        replace(llama, weights=Weights("w8a8")),
        replace(mixtral_8x7b(architecture), weights=Weights("int4", 128, has_zero_points=True)),
    )
