"""Qwen2 and Qwen2.5: biases on q, k and v; where asked, a window in the layers from a number on.

Source: Yang et al. 2024 (Qwen2); transformers' Qwen2Config for the window.
"""

from forebay_budget.family import Family, where_asked, windowed_where
from forebay_budget.settings import Settings


@where_asked
def windows_of_the_last_layers(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
    """A window in the layers from max_window_layers on."""
    first = settings.count("max_window_layers")
    return windowed_where(settings, num_layers, lambda number: number >= first)


QWEN2 = Family(
    "Qwen2ForCausalLM",
    gguf_kinds=("qwen2",),
    defaults={
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": 4_096,
        "max_window_layers": 28,
    },
    windows=windows_of_the_last_layers,
    needs_qkv_bias=True,
)
