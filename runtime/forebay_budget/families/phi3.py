"""Phi-3 and Phi-4 (text): q, k and v, and gate and up, are one matrix each in the checkpoint; heads
may be rotated in part, by factors that suit short or long contexts.

Source: Abdin et al. 2024 (Phi-3) §2; Ding et al. 2024 (LongRoPE); transformers' Phi3Config.
"""

from dataclasses import replace

from forebay_budget.family import Family, one_rope, windowed_everywhere
from forebay_budget.rope import LongScaling, Rope
from forebay_budget.settings import Settings, unusable


def _ropes(family: Family, settings: Settings, head_dim: int) -> tuple[Rope, Rope]:
    """One rotary embedding; where it is scaled, by as many factors as it has frequencies."""
    rope, _ = one_rope(family, settings, head_dim)
    scaling = rope.scaling
    if isinstance(scaling, LongScaling):
        for factors in (scaling.short_factors, scaling.long_factors):
            if factors is not None and len(factors) != rope.num_dims // 2:
                raise unusable(f"{len(factors)} factors", "rope_scaling")
    return rope, replace(rope)


PHI3 = Family(
    "Phi3ForCausalLM",
    gguf_kinds=("phi3",),
    defaults={
        "max_position_embeddings": 4_096,
        "original_max_position_embeddings": 4_096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
    },
    windows=windowed_everywhere,
    ropes=_ropes,
    is_fused=True,
    rotates_partly=True,
)
