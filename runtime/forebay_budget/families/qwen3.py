"""Qwen3: each head of q and k is normed before it is rotated; no biases; head_dim of its own.

Source: Yang et al. 2025 (Qwen3) §2.
"""

from forebay_budget.families.qwen2 import windows_of_the_last_layers
from forebay_budget.family import Family

QWEN3 = Family(
    "Qwen3ForCausalLM",
    gguf_kinds=("qwen3",),
    defaults={
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": 4_096,
        "max_window_layers": 28,
    },
    windows=windows_of_the_last_layers,
    has_qk_norm=True,
)
