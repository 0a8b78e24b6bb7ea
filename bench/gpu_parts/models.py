"""The models that are measured, as their config.json says them; their weights are random."""

from __future__ import annotations

from typing import Any

_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}

LLAMA_3_1_8B = {
    **_LLAMA,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}

QWEN3_0_6B = {
    **_LLAMA,
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}

SMOLLM2_135M = {
    **_LLAMA,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}

MODELS = {
    "Llama-3.1-8B": LLAMA_3_1_8B,
    "Qwen3-0.6B": QWEN3_0_6B,
    "SmolLM2-135M": SMOLLM2_135M,
}

_TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "max_position_embeddings": 256,
}


def config_of(model: str, *, is_tiny: bool) -> dict[str, Any]:
    """A model's config.json; tiny: of the same family, but small."""
    return {**MODELS[model], **(_TINY if is_tiny else {})}


def num_matrix_elements(config: dict[str, Any]) -> int:
    """Elements of the layers' matrices: each is one product and one sum a token."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    attention = hidden * head * (2 * heads + 2 * kv_heads)
    return config["num_hidden_layers"] * (attention + 3 * hidden * inner)


def prefill_flops(config: dict[str, Any], num_tokens: int) -> float:
    """Of a prompt: all products, and attention to what is before each token."""
    heads, head = config["num_attention_heads"], config["head_dim"]
    seen = num_tokens * (num_tokens + 1) / 2
    attention = config["num_hidden_layers"] * 4 * heads * head * seen
    return 2 * num_matrix_elements(config) * num_tokens + attention
