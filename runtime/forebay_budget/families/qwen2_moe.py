"""Qwen2-MoE (Qwen1.5-MoE): Qwen2 with a mixture in most layers, and beside it a shared expert
that every token passes, weighed by a gate of its own.

Source: Yang et al. 2024 (Qwen2) §2.2; transformers' Qwen2MoeConfig for which layers.
"""

from forebay_budget.family import Family, where_asked, windowed_where
from forebay_budget.inspection import ModelError
from forebay_budget.settings import Settings


def sparse_layers(settings: Settings, num_layers: int) -> tuple[bool, ...]:
    """A mixture in every decoder_sparse_step-th layer, but for those that mlp_only_layers names.

    Raises: ModelError.
    """
    step = settings.number("decoder_sparse_step")
    dense = settings.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(number) is int for number in dense):
        raise ModelError("BadConfig", "The model's mlp_only_layers is no list of numbers.")
    return tuple(number not in dense and (number + 1) % step == 0 for number in range(num_layers))


@where_asked
def _windows(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
    end = settings.count("max_window_layers")
    return windowed_where(settings, num_layers, lambda number: number % 2 == 0 and number < end)


QWEN2_MOE = Family(
    "Qwen2MoeForCausalLM",
    gguf_kinds=("qwen2moe",),
    defaults={
        "num_key_value_heads": 16,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": 4_096,
        "max_window_layers": 28,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1_408,
        "shared_expert_intermediate_size": 5_632,
        "decoder_sparse_step": 1,
    },
    windows=_windows,
    experts_in=sparse_layers,
    needs_qkv_bias=True,
)
