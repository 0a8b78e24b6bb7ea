"""Tiny random checkpoints of real architectures, by transformers, with odd sizes on purpose."""

from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tiny_gguf import write_gguf

_ODD_SIZES: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 32,
    "vocab_size": 131,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}
"""head_dim 32 is not 96 / 6; every row is a whole number of GGUF's blocks of 32."""

_EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 64}

FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "mixtral": (
        MixtralConfig,
        MixtralForCausalLM,
        {"num_local_experts": 5, "num_experts_per_tok": 2},
    ),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"head_dim": 16}),
    "qwen2_moe": (
        Qwen2MoeConfig,
        Qwen2MoeForCausalLM,
        {"head_dim": 16, "shared_expert_intermediate_size": 96, **_EXPERTS},
    ),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, {"norm_topk_prob": True, **_EXPERTS}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"sliding_window": 8, "query_pre_attn_scalar": 32}),
    "gemma3": (
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {"sliding_window": 8, "query_pre_attn_scalar": 32, "num_hidden_layers": 7},
    ),
    "phi3": (Phi3Config, Phi3ForCausalLM, {"head_dim": 16}),
}
"""The config's class, the model's, and what differs from _ODD_SIZES. A head_dim of 16 is what
hidden size and heads give, where the config has no other."""


def build_tiny(family: str = "llama", **sizes: Any) -> PreTrainedModel:
    """A random model of a family; vectors are random too, so that none of them can be left out."""
    config_class, model_class, changes = FAMILIES[family]
    config = config_class(**{**_ODD_SIZES, **changes, **sizes})
    # The only one of transformers' ways to attend that heeds every family's numbers.
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model: PreTrainedModel = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(_middle(family, name), 0.3)
            elif "experts" in name or ".gate." in name:
                parameter.normal_(0.0, 0.2)
    return model


def _middle(family: str, name: str) -> float:
    """What a vector lies around: one for a norm, but for families that train it less one."""
    return 1.0 if name.endswith("norm.weight") and not family.startswith("gemma") else 0.0


def save_tiny(folder: Path, family: str = "llama", **sizes: Any) -> PreTrainedModel:
    """Write a random model as a Hugging Face folder."""
    model = build_tiny(family, **sizes)
    model.save_pretrained(folder)
    return model


def save_gguf(
    path: Path, model: PreTrainedModel, *kinds: gguf.GGMLQuantizationType, **metadata: Any
) -> None:
    """Write a model as GGUF, its matrices in the types in turn, as llama.cpp's conversion lays it
    out.

    The model's own weights are replaced by what the file's reader makes of them, so that it stays
    the oracle whatever the type loses.
    """
    write_gguf(path, model, kinds, metadata)


def reference_logits(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """What transformers makes of a prompt: the logits after each token, [T, V]."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits
