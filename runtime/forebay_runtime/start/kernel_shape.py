"""From a model's blueprint to the shapes that kernels are compiled for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from forebay_budget.blueprint import Blueprint
from forebay_budget.inspection import ModelConfig
from forebay_budget.packing import Packing
from forebay_budget.rounding import ROUNDED_BITS, choose_group_size, has_zeros, list_inputs
from forebay_kernels.gpu.architecture import Architecture
from forebay_kernels.gpu.model_shape import (
    Activation,
    Dtype,
    KvKind,
    Mixture,
    ModelShape,
    WeightFormat,
    Weights,
)

_DTYPES: dict[str, Dtype] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_FORMATS: dict[int, WeightFormat] = {4: "int4", 8: "int8"}
_ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True)
class Serving:
    """What the engine's flags add to a model: dtype by torch's name; num_ranks share a layer.

    quantization: as the flag has it; INT8 and INT4 round what a checkpoint has not packed.
    """

    dtype: str
    kv_kind: KvKind = "plain"
    block_size: int = 16
    quantization: str = "None"
    num_ranks: int = 1
    is_batch_invariant: bool = False


def kernel_shapes(
    blueprint: Blueprint, serving: Serving, architecture: Architecture
) -> tuple[ModelShape, ...]:
    """What one rank runs: a shape for each way in which its matrices are kept.

    Where KV heads are fewer than ranks, each rank holds one of them.
    """
    if blueprint.packing is not None:
        ways = set(_packed(blueprint.packing, serving))
    else:
        ways = set(_rounded(blueprint.sizes, serving.quantization))
    shape = _shape(blueprint, serving, architecture)
    return tuple(replace(shape, weights=way) for way in sorted(ways, key=repr))


def _packed(packing: Packing, serving: Serving) -> Iterator[Weights]:
    """As a checkpoint packs: zero points that are all in the middle are dropped."""
    if packing.quantizes_activations:
        yield Weights("w8a8", scale_dtype="fp32")
        return
    cut = packing.is_reordered and packing.group_size and serving.num_ranks > 1
    group_size = 32 if cut else packing.group_size
    for zeros in {False, packing.has_zeros}:
        for scales in (None, "fp16") if serving.dtype == "bfloat16" else (None,):
            yield Weights(_FORMATS[packing.bits], group_size, zeros, scales)


def _rounded(sizes: ModelConfig, quantization: str) -> Iterator[Weights]:
    """As plain matrices are rounded: in groups that their inputs divide into."""
    bits = ROUNDED_BITS.get(quantization)
    if bits is None:
        yield Weights()
        return
    for num_inputs in list_inputs(sizes):
        group_size = choose_group_size(num_inputs, bits)
        if group_size is not None:
            yield Weights(_FORMATS[bits], group_size, has_zeros(bits))


def _shape(blueprint: Blueprint, serving: Serving, architecture: Architecture) -> ModelShape:
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
        vocab_size=sizes.vocab_size,
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
