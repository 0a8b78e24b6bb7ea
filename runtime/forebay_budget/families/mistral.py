"""Mistral: Llama with one sliding window in every layer, where a window is stated.

Its GGUF files call themselves llama, and have no window.
Source: Jiang et al. 2023 (Mistral 7B) §2.
"""

from forebay_budget.family import Family, windowed_everywhere

MISTRAL = Family(
    "MistralForCausalLM",
    gguf_kinds=("mistral",),
    defaults={
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": 4_096,
    },
    windows=windowed_everywhere,
    is_interleaved_in_gguf=True,
)
