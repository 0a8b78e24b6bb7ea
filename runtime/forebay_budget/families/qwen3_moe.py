"""Qwen3-MoE: Qwen3 with a mixture in most layers, without a shared expert.

Source: Yang et al. 2025 (Qwen3) §2; transformers' Qwen3MoeConfig for which layers.
"""

from collections.abc import Mapping
from typing import Any

from forebay_budget.families.qwen2_moe import sparse_layers
from forebay_budget.family import Family, where_asked, windowed_everywhere
from forebay_budget.settings import Settings


def _untold(settings: Settings) -> Mapping[str, Any]:
    # All published ones say so in their config.json, and llama.cpp runs them so.
    return {"norm_topk_prob": True}


QWEN3_MOE = Family(
    "Qwen3MoeForCausalLM",
    gguf_kinds=("qwen3moe",),
    defaults={
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": 4_096,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
    },
    untold_by_gguf=_untold,
    windows=where_asked(windowed_everywhere),
    experts_in=sparse_layers,
    has_qk_norm=True,
)
