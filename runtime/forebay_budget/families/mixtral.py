"""Mixtral: Mistral with a mixture of experts in every layer, their weights adding up to one.

Source: Jiang et al. 2024 (Mixtral of Experts) §2.
"""

from forebay_budget.family import ExpertNames, Family, windowed_everywhere
from forebay_budget.settings import Settings


def _everywhere(settings: Settings, num_layers: int) -> tuple[bool, ...]:
    return (True,) * num_layers


MIXTRAL = Family(
    "MixtralForCausalLM",
    gguf_kinds=(),
    defaults={
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1_000_000.0,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    },
    windows=windowed_everywhere,
    experts_in=_everywhere,
    experts=ExpertNames("block_sparse_moe", gate="w1", up="w3", down="w2"),
    is_interleaved_in_gguf=True,
)
