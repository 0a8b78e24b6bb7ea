"""A config.json for a model that came as GGUF: the blueprint in Hugging Face's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from forebay_budget.blueprint import Blueprint
from forebay_budget.rope import (
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    Rope,
    YarnScaling,
)
from forebay_runtime.models.rope import ReadFactors, rope_frequencies
from forebay_runtime.quantizing.refusal import QuantizeError

_MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Phi3ForCausalLM": "phi3",
}
_LLAMA3_FACTORS = (8.0, 32.0, 16.0, 4.0)
"""Of Llama 3.1 and 3.3, of 3.2, and others that were trained from them."""


def build_config(blueprint: Blueprint, read: ReadFactors, *, has_biases: bool) -> dict[str, Any]:
    """config.json, without what tells of tokens and quantisation.

    read: of tensors of factors, by name and length. has_biases: projections have them.
    Raises: QuantizeError where config.json cannot say what the GGUF does.
    """
    sizes, family = blueprint.sizes, blueprint.family
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": _MODEL_TYPES[family.architecture],
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads,
        "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": sizes.vocab_size,
        "max_position_embeddings": sizes.max_position_embeddings,
        "rms_norm_eps": blueprint.rms_norm_eps,
        "tie_word_embeddings": sizes.tie_word_embeddings,
        family.activation_key: family.activation,
    }
    if family.activation_key != "hidden_act":
        config["hidden_act"] = family.activation
    if not family.needs_qkv_bias:
        config["attention_bias"] = has_biases
    scalings = [layer.rope.scaling for layer in blueprint.layers]
    if all(isinstance(scaling, LinearScaling) for scaling in scalings):
        # What is read multiplies it by the factor.
        factor = max(each.factor for each in scalings if isinstance(each, LinearScaling))
        config["max_position_embeddings"] = round(sizes.max_position_embeddings / factor)
    return config | _attention(blueprint) | _ropes(blueprint, read)


def _attention(blueprint: Blueprint) -> dict[str, Any]:
    """Windows, scale and soft caps, where the family has them."""
    config: dict[str, Any] = {}
    windows = [layer.window for layer in blueprint.layers]
    stated = next((window for window in windows if window is not None), None)
    if "sliding_window" in blueprint.family.defaults or stated is not None:
        config["sliding_window"] = stated
        if stated is not None and None in windows:
            kinds = {True: "full_attention", False: "sliding_attention"}
            config["layer_types"] = [kinds[window is None] for window in windows]
    if "query_pre_attn_scalar" in blueprint.family.defaults:
        config["query_pre_attn_scalar"] = round(blueprint.attention_scale**-2)
    if blueprint.family.has_softcaps:
        config["attn_logit_softcapping"] = blueprint.attention_softcap
        config["final_logit_softcapping"] = blueprint.logit_softcap
    return config


def _ropes(blueprint: Blueprint, read: ReadFactors) -> dict[str, Any]:
    """The rotary embedding, and beside it that of layers with a window where it is another."""
    of_all = next(
        (layer.rope for layer in blueprint.layers if layer.window is None),
        blueprint.layers[0].rope,
    )
    config: dict[str, Any] = {"rope_theta": of_all.theta}
    if of_all.num_dims != blueprint.sizes.head_dim:
        config["partial_rotary_factor"] = of_all.num_dims / blueprint.sizes.head_dim
    if of_all.scaling is not None:
        config["rope_scaling"] = _scaling(of_all, read)
    if isinstance(of_all.scaling, LongScaling):
        config["original_max_position_embeddings"] = of_all.scaling.original_positions
    if "rope_local_base_freq" in blueprint.family.defaults:
        of_windows = next((x.rope for x in blueprint.layers if x.window is not None), of_all)
        config["rope_local_base_freq"] = of_windows.theta
    return config


def _scaling(rope: Rope, read: ReadFactors) -> dict[str, Any]:
    match rope.scaling:
        case LinearScaling(factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling():
            return _llama3(rope.scaling)
        case YarnScaling() as yarn:
            scaling = {
                "rope_type": "yarn",
                "factor": yarn.factor,
                "original_max_position_embeddings": yarn.original_positions,
                "beta_fast": yarn.beta_fast,
                "beta_slow": yarn.beta_slow,
                "truncate": yarn.is_truncated,
            }
            if yarn.attention_factor is not None:
                scaling["attention_factor"] = yarn.attention_factor
            return scaling
        case LongScaling() as long:
            return _longrope(rope, long, read)
        case _:
            return _recognise(rope, read("rope_freqs.weight", rope.num_dims // 2))


def _llama3(scaling: Llama3Scaling) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": int(scaling.original_positions),
    }


def _longrope(rope: Rope, scaling: LongScaling, read: ReadFactors) -> dict[str, Any]:
    factors = {"short": scaling.short_factors, "long": scaling.long_factors}
    stated: dict[str, Any] = {"rope_type": "longrope", "type": "longrope"}
    for kind, own in factors.items():
        if own is None:
            own = tuple(read(f"rope_factors_{kind}.weight", rope.num_dims // 2).tolist())
        stated[f"{kind}_factor"] = list(own)
    if scaling.attention_factor is not None:
        stated["attention_factor"] = scaling.attention_factor
    return stated


def _recognise(rope: Rope, factors: Tensor) -> dict[str, Any]:
    """The settings of Llama 3.1's scaling that give the factors which a GGUF holds in their place.

    Raises: QuantizeError if none of those in use does.
    """
    plain, _ = rope_frequencies(replace(rope, scaling=None), 1, 1, _no_factors)
    for factor in _LLAMA3_FACTORS:
        scaling = Llama3Scaling(factor, 1.0, 4.0, 8192)
        scaled, _ = rope_frequencies(replace(rope, scaling=scaling), 1, 1, _no_factors)
        if torch.allclose(plain / factors, scaled, rtol=1e-3):
            return _llama3(scaling)
    raise QuantizeError(
        "The GGUF scales its rotary embedding by factors that no config.json can state "
        "(rope_freqs.weight); quantise the model's Hugging Face folder instead"
    )


def _no_factors(name: str, size: int) -> Tensor:
    raise KeyError(name)
